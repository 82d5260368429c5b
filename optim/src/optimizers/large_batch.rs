use grove_backend::Backend;
use grove_tree::{Filter, everything};
use serde::Deserialize;

use crate::{
    AddDecayedWeights, Masked, Scalar, ScalarOrSchedule, ScaleByAdam, ScaleByLearningRate, ScaleByTrustRatio, Trace,
    add_decayed_weights, masked,
    options::{fraction, mask, positive, setters},
    scale_by_learning_rate, trace,
};

/// Options of [`lamb`].
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Lamb<B: Backend> {
    /// Decay rate of the first moment. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub b1: Scalar<B>,
    /// Decay rate of the second moment. Default 0.999.
    #[serde(deserialize_with = "fraction")]
    pub b2: Scalar<B>,
    /// Added to the denominator outside the square root, for numerical stability. Default 1e-6.
    pub eps: Scalar<B>,
    /// Added to the denominator inside the square root. Default 0.
    pub eps_root: Scalar<B>,
    /// Multiple of the parameters that is added to the updates before the trust ratio is applied. Default 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Parameters that weight decay applies to; `None`, the default, for all.
    #[serde(rename = "weight_decay_mask", deserialize_with = "mask")]
    pub mask: Option<Filter<B>>,
}

impl<B: Backend> Default for Lamb<B> {
    fn default() -> Self {
        let ScaleByAdam { b1, b2, eps_root, .. } = ScaleByAdam::default();
        Self { b1, b2, eps: 1e-6.into(), eps_root, weight_decay: 0.0.into(), mask: None }
    }
}

setters! {
    Lamb:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into eps: Scalar<B>,
    into eps_root: Scalar<B>,
    into weight_decay: ScalarOrSchedule<B>,
    some mask: Filter<B>,
}

/// The chain of [`lamb`].
pub type LambChain<B> = (ScaleByAdam<B>, AddDecayedWeights<B>, ScaleByTrustRatio<B>, ScaleByLearningRate<B>);

/// The LAMB optimizer: Adam's updates, scaled by the trust ratio of each parameter. You et al., "Large Batch
/// Optimization for Deep Learning: Training BERT in 76 minutes" (2020).
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
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Lars<B: Backend> {
    /// Multiple of the parameters that is added to their gradients. Default 0.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Parameters that weight decay applies to; `None`, the default, for all.
    #[serde(deserialize_with = "mask")]
    pub weight_decay_mask: Option<Filter<B>>,
    /// Factor of the trust ratio. Default 1e-3.
    #[serde(deserialize_with = "positive")]
    pub trust_coefficient: Scalar<B>,
    /// Added to the norm of the update for numerical stability. Default 0.
    pub eps: Scalar<B>,
    /// Parameters whose updates are scaled by the trust ratio; `None`, the default, for all.
    #[serde(deserialize_with = "mask")]
    pub trust_ratio_mask: Option<Filter<B>>,
    /// Decay rate of the accumulated updates. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub momentum: Scalar<B>,
    /// If true, uses Nesterov momentum. Default false.
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

setters! {
    Lars:
    into weight_decay: ScalarOrSchedule<B>,
    some weight_decay_mask: Filter<B>,
    into trust_coefficient: Scalar<B>,
    into eps: Scalar<B>,
    some trust_ratio_mask: Filter<B>,
    into momentum: Scalar<B>,
    plain nesterov: bool,
}

/// The chain of [`lars`].
pub type LarsChain<B> = (AddDecayedWeights<B>, Masked<B, ScaleByTrustRatio<B>>, ScaleByLearningRate<B>, Trace<B>);

/// The LARS optimizer: gradients scaled by the trust ratio of each parameter, with momentum. You, Gitman and Ginsburg,
/// "Large Batch Training of Convolutional Networks" (2017).
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
