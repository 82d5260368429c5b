//! Gradient transformations: the mathematics that optimizers chain.

mod adam;
mod adaptive_clip;
mod amsgrad;
mod belief;
mod block;
mod centralize;
mod clip;
mod decay;
mod factored_rms;
mod lion;
mod moment;
mod muon;
mod noise;
mod orthogonalize;
mod radam;
mod rms;
mod rss;
mod scale;
mod trace;
mod zero_nans;

pub(crate) use moment::bias_correction;

pub use adam::{ScaleByAdam, ScaleByAdamState, scale_by_adam};
pub use adaptive_clip::{AdaptiveGradClip, adaptive_grad_clip};
pub use amsgrad::{ScaleByAmsgrad, ScaleByAmsgradState, scale_by_amsgrad};
pub use belief::{ScaleByBelief, scale_by_belief};
pub use block::{
    ClipByBlockRms, ScaleByParamBlockRms, ScaleByTrustRatio, clip_by_block_rms, scale_by_param_block_rms,
    scale_by_trust_ratio,
};
pub use centralize::{Centralize, centralize};
pub use clip::{Clip, ClipByGlobalNorm, clip, clip_by_global_norm, global_norm};
pub use decay::{AddDecayedWeights, add_decayed_weights};
pub use factored_rms::{FactoredState, ScaleByFactoredRms, scale_by_factored_rms};
pub use lion::{LionMode, ScaleByLion, ScaleByLionState, scale_by_lion};
pub use muon::{
    DION_NS_COEFFS, MUON_NS_COEFFS, MuonDimensionNumbers, MuonState, ScaleByMuon, ScaleByShape, WeightDimensionNumbers,
    scale_by_muon, scale_by_shape,
};
pub use noise::{AddNoise, AddNoiseState, add_noise};
pub use orthogonalize::{Preconditioning, orthogonalize};
pub use radam::{ScaleByRadam, scale_by_radam};
pub use rms::{ScaleByRms, ScaleByRmsState, ScaleByStddev, ScaleByStddevState, scale_by_rms, scale_by_stddev};
pub use rss::{ScaleByRss, ScaleByRssState, scale_by_rss};
pub use scale::{
    FromFunctions, Identity, Scale, ScaleByLearningRate, ScaleBySchedule, SetToZero, Stateless,
    gradient_transformation, identity, scale, scale_by_learning_rate, scale_by_schedule, set_to_zero, stateless,
};
pub use trace::{Ema, EmaState, Trace, TraceState, ema, trace};
pub use zero_nans::{ZeroNans, ZeroNansState, zero_nans};
