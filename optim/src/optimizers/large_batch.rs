use grove_backend::Backend;
use grove_tree::{Filter, everything};

use crate::{
    AddDecayedWeights, Masked, Scalar, ScalarOrSchedule, ScaleByAdam, ScaleByLearningRate, ScaleByTrustRatio, Trace,
    add_decayed_weights, masked, scale_by_learning_rate, trace,
};

/// Options of [`lamb`].
#[derive(Clone)]
pub struct Lamb<B: Backend> {
    /// How much of the first moment stays at each step: 0.9.
    pub b1: Scalar<B>,
    /// How much of the second moment stays at each step: 0.999.
    pub b2: Scalar<B>,
    /// Added to the root: 1e-6.
    pub eps: Scalar<B>,
    /// Added below the root: 0.
    pub eps_root: Scalar<B>,
    /// Multiple of the parameters that is added before updates are scaled to their size: 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Which parameters decay: all.
    pub mask: Option<Filter<B>>,
}

impl<B: Backend> Default for Lamb<B> {
    fn default() -> Self {
        let ScaleByAdam { b1, b2, eps_root, .. } = ScaleByAdam::default();
        Self { b1, b2, eps: 1e-6.into(), eps_root, weight_decay: 0.0.into(), mask: None }
    }
}

/// What [`lamb`] chains.
pub type LambChain<B> = (ScaleByAdam<B>, AddDecayedWeights<B>, ScaleByTrustRatio<B>, ScaleByLearningRate<B>);

/// LAMB: Adam's updates, scaled to the size of each parameter. You et al., "Large Batch Optimization for Deep Learning:
/// Training BERT in 76 minutes" (2020).
pub fn lamb<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Lamb<B>) -> LambChain<B> {
    let Lamb { b1, b2, eps, eps_root, weight_decay, mask } = options;
    (
        ScaleByAdam { b1, b2, eps, eps_root, nesterov: false },
        add_decayed_weights(weight_decay, mask),
        ScaleByTrustRatio::default(),
        scale_by_learning_rate(learning_rate),
    )
}

/// Options of [`lars`].
#[derive(Clone)]
pub struct Lars<B: Backend> {
    /// Multiple of the parameters that is added to their gradients: 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Which parameters decay: all.
    pub weight_decay_mask: Option<Filter<B>>,
    /// What the ratio of sizes is multiplied by: 1e-3.
    pub trust_coefficient: Scalar<B>,
    /// Added to the norm of the update: 0.
    pub eps: Scalar<B>,
    /// The updates of which parameters are scaled to their size: all.
    pub trust_ratio_mask: Option<Filter<B>>,
    /// How much of the sum of updates stays at each step: 0.9.
    pub momentum: Scalar<B>,
    /// Whether to look one step ahead: no.
    pub nesterov: bool,
}

impl<B: Backend> Default for Lars<B> {
    fn default() -> Self {
        Self {
            weight_decay: 0.0.into(),
            weight_decay_mask: None,
            trust_coefficient: 1e-3.into(),
            eps: 0.0.into(),
            trust_ratio_mask: None,
            momentum: 0.9.into(),
            nesterov: false,
        }
    }
}

/// What [`lars`] chains.
pub type LarsChain<B> = (AddDecayedWeights<B>, Masked<B, ScaleByTrustRatio<B>>, ScaleByLearningRate<B>, Trace<B>);

/// LARS: gradients, scaled to the size of each parameter, with momentum. You, Gitman and Ginsburg, "Large Batch Training
/// of Convolutional Networks" (2017).
pub fn lars<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Lars<B>) -> LarsChain<B> {
    let Lars { weight_decay, weight_decay_mask, trust_coefficient, eps, trust_ratio_mask, momentum, nesterov } =
        options;
    let ratio = ScaleByTrustRatio { min_norm: 0.0.into(), trust_coefficient, eps };
    (
        add_decayed_weights(weight_decay, weight_decay_mask),
        masked(ratio, trust_ratio_mask.unwrap_or_else(everything)),
        scale_by_learning_rate(learning_rate),
        trace(momentum, nesterov),
    )
}
