use grove_backend::Backend;
use grove_tree::Filter;
use serde::Deserialize;

use crate::{
    AddDecayedWeights, LionMode, Scalar, ScalarOrSchedule, ScaleByLearningRate, ScaleByLion, add_decayed_weights,
    options::{fraction, mask, setters},
    scale_by_learning_rate,
};

/// Options of [`lion`].
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Lion<B: Backend> {
    /// Weight of the momentum in the update's interpolation between momentum and gradient. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub b1: Scalar<B>,
    /// Decay rate of the momentum. Default 0.99.
    #[serde(deserialize_with = "fraction")]
    pub b2: Scalar<B>,
    /// Decoupled weight decay: each step subtracts this times the learning rate times the parameter. Default 1e-3.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Parameters that weight decay applies to; `None`, the default, for all.
    #[serde(rename = "weight_decay_mask", deserialize_with = "mask")]
    pub mask: Option<Filter<B>>,
}

impl<B: Backend> Default for Lion<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.99.into(), weight_decay: 1e-3.into(), mask: None }
    }
}

setters! {
    Lion:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into weight_decay: ScalarOrSchedule<B>,
    some mask: Filter<B>,
}

/// The chain of [`lion`].
pub type LionChain<B> = (ScaleByLion<B>, AddDecayedWeights<B>, ScaleByLearningRate<B>);

/// The Lion optimizer: updates are the signs of an interpolation between momentum and gradient. Suitable learning rates
/// are 3 to 10 times smaller than Adam's. Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
pub fn lion<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Lion<B>) -> LionChain<B> {
    let Lion { b1, b2, weight_decay, mask } = options;
    (
        ScaleByLion { b1, b2, mode: LionMode::Hard },
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
}
