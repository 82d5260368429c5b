//! Wrappers: transformations of transformations.

mod any_tree;
mod apply_if_finite;
mod boxed;
mod either;
mod freeze;
mod inject;
mod layer_decay;
mod lookahead;
mod masked;
mod multi_steps;
mod named_chain;
mod partition;
mod schedule_free;

pub use any_tree::ForAnyTree;
pub use apply_if_finite::{ApplyIfFinite, ApplyIfFiniteState, apply_if_finite};
pub use boxed::{Boxed, boxed};
pub use either::{Either, EitherState};
pub use freeze::{Freeze, SelectiveTransform, freeze, selective_transform};
pub use inject::{
    Hyperparams, InjectHyperparams, InjectHyperparamsState, hyperparam, inject_hyperparams, set_hyperparam,
};
pub use layer_decay::{layer_decay, layer_decay_of};
pub use lookahead::{Lookahead, LookaheadState, lookahead};
pub use masked::{Masked, masked};
pub use multi_steps::{EveryK, MultiSteps, MultiStepsState, SkipUpdates, multi_steps};
pub use named_chain::{NamedChain, named_chain};
pub use partition::{Partition, partition};
pub use schedule_free::{
    ScheduleFree, ScheduleFreeAdamw, ScheduleFreeAdamwBase, ScheduleFreeSgd, ScheduleFreeState, schedule_free,
    schedule_free_adamw, schedule_free_eval_params, schedule_free_sgd,
};
