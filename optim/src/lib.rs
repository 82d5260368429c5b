//! Optimizers as chains of gradient transformations, in optax's terms.
//!
//! Every part implements [`GradientTransformation`]: a state initialised from the parameters, and a function from
//! updates and state to updates and state. The mathematics is in the `scale_by_*` functions; optimizers only chain
//! them. States are trees. Hyperparameters that change are arrays of the state or [`Schedule`]s of its step count, so
//! that a whole train step is one function of arrays.
//!
//! | what | where |
//! |---|---|
//! | optimizers | [`sgd`], [`adam`], [`adamw`], [`nadamw`], [`amsgrad`], [`adagrad`], [`rmsprop`], [`lion`], [`lamb`], [`lars`], [`radam`], [`adabelief`], [`adafactor`], [`muon`], [`schedule_free_adamw`] |
//! | of one's own | [`stateless`], [`gradient_transformation`], or a struct with [`GradientTransformation`]; [`elementwise`], [`zeros_like`], [`zero_count`], [`increment`], [`has_no_leaves`], [`device_of`] |
//! | chains | tuples ([`chain`]), [`named_chain`], [`partition`], vectors of [`boxed`] parts, [`OptimizerConfig`] |
//! | which parameters | [`masked`], [`freeze`], [`selective_transform`]; [`matrices`], [`by_rank`], [`by_role`], [`by_path`](grove_tree::by_path) |
//! | around an optimizer | [`multi_steps`], [`apply_if_finite`], [`inject_hyperparams`], [`lookahead`], [`schedule_free`] |
//! | schedules | [`Schedule`] and the functions that make one |
//! | several ranks | [`all_reduce_gradients`] as a link of a chain; [`zero1`] divides state and updates |
//!
//! Options are structs whose [`Default`] has optax's values, with a method for each field: `rmsprop(1e-3,
//! Rmsprop::default().decay(0.95))`. Results and states are tested against optax 0.2.8.
//!
//! ```
//! use grove_optim::{Adamw, GradientTransformation, adamw, apply_updates, chain, clip_by_global_norm, matrices};
//! use grove_tree::{Array, Init, Key};
//! # type B = burn_flex::Flex;
//! let params = Init::<B>::new(Key::new(0), &Default::default()).normal([3, 4], 1.0);
//! let optimizer = chain((
//!     clip_by_global_norm(1.0),
//!     adamw(3e-4, Adamw::default().weight_decay(0.1).mask(matrices())),
//! ));
//! let state = optimizer.init(&params);
//! let grads = params.clone();
//! let (updates, state) = optimizer.update(grads, state, &params);
//! let params = apply_updates(params, updates);
//! # let _ = (params, state);
//! ```
#![warn(missing_docs)]

mod config;
mod error;
mod leafwise;
mod masks;
mod optimizers;
mod options;
mod per_example;
mod ranks;
mod scalar;
mod schedule;
mod select;
mod transformation;
mod transforms;
mod wrappers;

pub use config::{OptimizerConfig, OptimizerName};
pub use error::OptimError;
pub use leafwise::{elementwise, zeros_like};
pub use masks::{Role, by_rank, by_role, except, matrices};
pub use optimizers::*;
pub use per_example::{PerExampleClip, per_example_clip};
pub use ranks::*;
pub use scalar::{Scalar, ScalarOrSchedule};
pub use schedule::*;
pub use select::{all_finite, select};
pub use transformation::{
    Count, GradientTransformation, apply_updates, chain, device_of, has_no_leaves, increment, zero_count,
};
pub use transforms::*;
pub use wrappers::*;
