use grove_backend::Backend;
use serde::Deserialize;

use crate::{
    Scalar, ScalarOrSchedule, ScaleByLearningRate, Trace,
    options::{setters, some_fraction},
    scale_by_learning_rate, trace,
};

/// Options of [`sgd`].
///
/// ```
/// use grove_optim::{Sgd, sgd};
/// # type B = burn_flex::Flex;
/// let optimizer = sgd(0.1, Sgd::<B>::default().momentum(0.9).nesterov(true));
/// # let _ = optimizer;
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Sgd<B: Backend> {
    /// Decay rate of the accumulated gradients; `None`, the default, for no momentum.
    #[serde(deserialize_with = "some_fraction")]
    pub momentum: Option<Scalar<B>>,
    /// If true, uses Nesterov momentum. Default false.
    pub nesterov: bool,
}

setters! {
    Sgd:
    some momentum: Scalar<B>,
    plain nesterov: bool,
}

/// The chain of [`sgd`].
pub type SgdChain<B> = (Option<Trace<B>>, ScaleByLearningRate<B>);

/// Stochastic gradient descent, with optional momentum. Sutskever et al., "On the importance of initialization and
/// momentum in deep learning" (2013).
///
/// ```
/// use grove_optim::{GradientTransformation, Sgd, apply_updates, sgd};
/// use grove_tree::Array;
/// use burn::tensor::Tensor;
/// # type B = burn_flex::Flex;
/// let mut params = Array::<B, 1>::new(Tensor::from_floats([5.0], &Default::default()));
/// let optimizer = sgd(0.1, Sgd::default().momentum(0.5));
/// let mut state = optimizer.init(&params);
/// for _ in 0..50 {
///     let grads = Array::new(params.val() * 2.0);
///     let (updates, next) = optimizer.update(grads, state, &params);
///     (params, state) = (apply_updates(params, updates), next);
/// }
/// assert!(params.val().into_scalar().abs() < 1e-3);
/// ```
pub fn sgd<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Sgd<B>) -> SgdChain<B> {
    let Sgd { momentum, nesterov } = options;
    (momentum.map(|momentum| trace(momentum, nesterov)), scale_by_learning_rate(learning_rate))
}
