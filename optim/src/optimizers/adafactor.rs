use grove_backend::Backend;
use grove_tree::Filter;

use crate::{
    AddDecayedWeights, ClipByBlockRms, Ema, Scalar, ScalarOrSchedule, Scale, ScaleByFactoredRms, ScaleByLearningRate,
    ScaleByParamBlockRms, add_decayed_weights, clip_by_block_rms, ema, scale, scale_by_learning_rate,
    scale_by_param_block_rms,
};

/// Options of [`adafactor`].
#[derive(Clone)]
pub struct Adafactor<B: Backend> {
    /// The least size of the two largest axes of a leaf whose second moment is factored: 128.
    pub min_dim_size_to_factor: usize,
    /// The exponent of the second moment's decay: 0.8.
    pub decay_rate: Scalar<B>,
    /// The step from which steps are counted, for fine-tuning: 0.
    pub decay_offset: u64,
    /// Whether updates are scaled to the size of their parameters: yes.
    pub multiply_by_parameter_scale: bool,
    /// The largest root mean square of an update before the learning rate: 1.
    pub clipping_threshold: Option<Scalar<B>>,
    /// How much of the mean of updates stays at each step; none: no momentum.
    pub momentum: Option<Scalar<B>>,
    /// Multiple of the parameters that is taken from them at each step, whatever the learning rate: none.
    pub weight_decay_rate: Option<ScalarOrSchedule<B>>,
    /// Added to squares: 1e-30.
    pub eps: Scalar<B>,
    /// Whether to factor at all: yes.
    pub factored: bool,
    /// Which parameters decay: all.
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

/// What [`adafactor`] chains.
pub type AdafactorChain<B> = (
    ScaleByFactoredRms<B>,
    Option<ClipByBlockRms<B>>,
    ScaleByLearningRate<B>,
    Option<ScaleByParamBlockRms<B>>,
    Option<Ema<B>>,
    Option<AddDecayedWeights<B>>,
    Scale<B>,
);

/// Adafactor: Adam's rescaling in little memory. Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear
/// Memory Cost" (2018).
///
/// optax may be given no learning rate; that is a learning rate of 1. In grove a part that the options leave out keeps
/// its place in the chain, and so the paths of the state of those that follow.
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
