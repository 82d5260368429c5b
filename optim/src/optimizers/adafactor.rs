use grove_backend::Backend;
use grove_tree::Filter;
use serde::Deserialize;

use crate::{
    AddDecayedWeights, ClipByBlockRms, Ema, Scalar, ScalarOrSchedule, Scale, ScaleByFactoredRms, ScaleByLearningRate,
    ScaleByParamBlockRms, add_decayed_weights, clip_by_block_rms, ema,
    options::{mask, setters, some_fraction, some_positive},
    scale, scale_by_learning_rate, scale_by_param_block_rms,
};

/// Options of [`adafactor`].
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Adafactor<B: Backend> {
    /// Minimum size of a leaf's two largest axes for its second moment to be factored. Default 128.
    pub min_dim_size_to_factor: usize,
    /// Exponent of the second moment's decay schedule. Default 0.8.
    pub decay_rate: Scalar<B>,
    /// Subtracted from the step count: the first step of a fine-tuning phase. Default 0.
    pub decay_offset: u64,
    /// If true, updates are multiplied by the root mean square of their parameters. Default true.
    pub multiply_by_parameter_scale: bool,
    /// Maximum root mean square of a leaf's update before the learning rate; `None` for no clipping. Default 1.
    #[serde(deserialize_with = "some_positive")]
    pub clipping_threshold: Option<Scalar<B>>,
    /// Decay rate of the moving average of updates; `None`, the default, for no momentum.
    #[serde(deserialize_with = "some_fraction")]
    pub momentum: Option<Scalar<B>>,
    /// Weight decay: each step subtracts this times the parameter, independent of the learning rate; `None`, the
    /// default, for no decay.
    pub weight_decay_rate: Option<ScalarOrSchedule<B>>,
    /// Added to squared gradients for numerical stability. Default 1e-30.
    pub eps: Scalar<B>,
    /// If true, second moments are factored. Default true.
    pub factored: bool,
    /// Parameters that weight decay applies to; `None`, the default, for all.
    #[serde(deserialize_with = "mask")]
    pub weight_decay_mask: Option<Filter<B>>,
}

impl<B: Backend> Default for Adafactor<B> {
    fn default() -> Self {
        Self {
            min_dim_size_to_factor: 128,
            decay_rate: 0.8.into(),
            decay_offset: 0,
            multiply_by_parameter_scale: true,
            clipping_threshold: Some(1.0.into()),
            momentum: None,
            weight_decay_rate: None,
            eps: 1e-30.into(),
            factored: true,
            weight_decay_mask: None,
        }
    }
}

setters! {
    Adafactor:
    plain min_dim_size_to_factor: usize,
    into decay_rate: Scalar<B>,
    plain decay_offset: u64,
    plain multiply_by_parameter_scale: bool,
    some clipping_threshold: Scalar<B>,
    some momentum: Scalar<B>,
    some weight_decay_rate: ScalarOrSchedule<B>,
    into eps: Scalar<B>,
    plain factored: bool,
    some weight_decay_mask: Filter<B>,
}

/// The chain of [`adafactor`].
pub type AdafactorChain<B> = (
    ScaleByFactoredRms<B>,
    Option<ClipByBlockRms<B>>,
    ScaleByLearningRate<B>,
    Option<ScaleByParamBlockRms<B>>,
    Option<Ema<B>>,
    Option<AddDecayedWeights<B>>,
    Scale<B>,
);

/// The Adafactor optimizer: adaptive learning rates like Adam's, with memory sublinear in the number of parameters.
/// Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018).
///
/// optax also accepts no learning rate, which corresponds to a learning rate of 1. In grove, a part that the options
/// disable keeps its position in the chain, so that the state paths of the other parts do not change.
pub fn adafactor<B: Backend>(
    learning_rate: impl Into<ScalarOrSchedule<B>>,
    options: Adafactor<B>,
) -> AdafactorChain<B> {
    let factored_rms = ScaleByFactoredRms {
        factored: options.factored,
        decay_rate: options.decay_rate,
        step_offset: options.decay_offset,
        min_dim_size_to_factor: options.min_dim_size_to_factor,
        epsilon: options.eps,
    };
    let mask = options.weight_decay_mask;
    (
        factored_rms,
        options.clipping_threshold.map(clip_by_block_rms),
        scale_by_learning_rate(learning_rate).flip_sign(false),
        options.multiply_by_parameter_scale.then(|| scale_by_param_block_rms(1e-3)),
        options.momentum.map(|momentum| ema(momentum, false)),
        options.weight_decay_rate.map(|rate| add_decayed_weights(rate, mask)),
        scale(-1.0),
    )
}
