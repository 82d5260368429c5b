//! Optimizers as chains of gradient transformations, in optax's terms.
//!
//! Every part implements [`GradientTransformation`]: `init` makes a state from the parameters, and `update` maps
//! updates and state to new updates and a new state. The mathematics is in the `scale_by_*` functions; optimizers only
//! chain them. States are trees. Hyperparameters that change are arrays in the state or [`Schedule`]s of its step
//! count, so that a whole train step is one function of arrays.
//!
//! | topic | items |
//! |---|---|
//! | optimizers | [`sgd`], [`adam`], [`adamw`], [`nadamw`], [`amsgrad`], [`adagrad`], [`rmsprop`], [`lion`], [`lamb`], [`lars`], [`radam`], [`adabelief`], [`adafactor`], [`muon`], [`schedule_free_adamw`] |
//! | custom transformations | [`stateless`], [`gradient_transformation`], or a struct with [`GradientTransformation`]; [`elementwise`], [`zeros_like`], [`zero_count`], [`increment`], [`has_no_leaves`], [`device_of`] |
//! | chains | tuples ([`chain`]), [`named_chain`], [`partition`], vectors of [`boxed`] parts, [`OptimizerConfig`] |
//! | parameter masks | [`masked`], [`freeze`], [`selective_transform`]; [`matrices`], [`by_rank`], [`by_role`], [`by_path`](grove_tree::by_path) |
//! | wrappers | [`multi_steps`], [`apply_if_finite`], [`inject_hyperparams`], [`lookahead`], [`schedule_free`] |
//! | schedules | [`Schedule`] and the functions that construct one |
//! | several ranks | [`all_reduce_gradients`] as the first part of a chain; [`zero1`] shards the optimizer state |
//!
//! Options are structs with a setter for each field. Their [`Default`] has optax's values: `rmsprop(1e-3,
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
