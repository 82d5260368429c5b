//! Gradient transformations: the mathematics that optimizers are chained of.

mod adam;
mod clip;
mod decay;
mod scale;

pub use adam::{ScaleByAdam, ScaleByAdamState, scale_by_adam};
pub use clip::{Clip, ClipByGlobalNorm, clip, clip_by_global_norm, global_norm};
pub use decay::{AddDecayedWeights, add_decayed_weights};
pub use scale::{
    Identity, Scale, ScaleByLearningRate, ScaleBySchedule, SetToZero, Stateless, identity, scale,
    scale_by_learning_rate, scale_by_schedule, set_to_zero, stateless,
};
