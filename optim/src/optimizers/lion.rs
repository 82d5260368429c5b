use grove_backend::Backend;
use grove_tree::Filter;

use crate::{
    AddDecayedWeights, LionMode, Scalar, ScalarOrSchedule, ScaleByLearningRate, ScaleByLion, add_decayed_weights,
    scale_by_learning_rate,
};

/// Options of [`lion`].
#[derive(Clone)]
pub struct Lion<B: Backend> {
    /// Weight of the momentum in the update's interpolation between momentum and gradient. Default 0.9.
    pub b1: Scalar<B>,
    /// Decay rate of the momentum. Default 0.99.
    pub b2: Scalar<B>,
    /// Decoupled weight decay: each step subtracts this times the learning rate times the parameter. Default 1e-3.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Parameters that weight decay applies to; `None`, the default, for all.
    pub mask: Option<Filter<B>>,
}

impl<B: Backend> Default for Lion<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.99.into(), weight_decay: 1e-3.into(), mask: None }
    }
}

/// The chain of [`lion`].
pub type LionChain<B> = (ScaleByLion<B>, AddDecayedWeights<B>, ScaleByLearningRate<B>);

/// Lion: updates are the signs of an interpolation between momentum and gradient. Its learning rates are 3 to 10
/// times smaller than Adam's. Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
pub fn lion<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Lion<B>) -> LionChain<B> {
    let Lion { b1, b2, weight_decay, mask } = options;
    (
        ScaleByLion { b1, b2, mode: LionMode::Hard },
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
}
