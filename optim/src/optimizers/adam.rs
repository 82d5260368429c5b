use grove_backend::Backend;
use grove_tree::{Filter, Tree};
use serde::Deserialize;

use super::fused_adam::Fused;
use crate::{
    AddDecayedWeights, Count, GradientTransformation, Scalar, ScalarOrSchedule, ScaleByAdam, ScaleByAdamState,
    ScaleByAmsgrad, ScaleByBelief, ScaleByLearningRate, ScaleByRadam, add_decayed_weights,
    options::{fraction, mask, setters},
    scale_by_learning_rate,
};

/// Options of [`adam`].
///
/// ```
/// use grove_optim::{Adam, adam};
/// # type B = burn_flex::Flex;
/// let optimizer = adam(1e-3, Adam::<B>::default().b1(0.8).nesterov(true));
/// # let _ = optimizer;
/// ```
pub type Adam<B> = ScaleByAdam<B>;

/// The chain of [`adam`]: two transformations, whose `step` is one fused pass over each leaf.
#[derive(Clone)]
pub struct AdamChain<B: Backend>((ScaleByAdam<B>, ScaleByLearningRate<B>));

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AdamChain<B> {
    type State = (ScaleByAdamState<B, P>, Option<Count<B>>);

    fn init(&self, params: &P) -> Self::State {
        self.0.init(params)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        self.0.update(updates, state, params)
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        let (scale_by_adam, scale_by_rate) = &self.0;
        if scale_by_adam.nesterov {
            return self.0.step(updates, state, params);
        }
        let (adam, rate) = state;
        let (factor, rate) = scale_by_rate.factor(rate, &updates);
        let fused = Fused { adam: scale_by_adam, factor, weight_decay: 0.0.into(), mask: None };
        let (params, adam) = fused.step(updates, adam, params);
        (params, (adam, rate))
    }
}

/// The Adam optimizer. Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::{Adam, GradientTransformation, adam};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let mut params = Array::<B, 1>::new(Tensor::from_floats([5.0], &Default::default()));
/// let optimizer = adam(0.5, Adam::default());
/// let mut state = optimizer.init(&params);
/// for _ in 0..100 {
///     let grads = Array::new(params.val() * 2.0); // of the square
///     (params, state) = optimizer.step(grads, state, params);
/// }
/// assert!(params.val().into_scalar().abs() < 0.5);
/// ```
pub fn adam<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Adam<B>) -> AdamChain<B> {
    AdamChain((options, scale_by_learning_rate(learning_rate)))
}

/// Options of [`adamw`].
///
/// ```
/// use grove_optim::{Adamw, adamw};
/// # type B = burn_flex::Flex;
/// let optimizer = adamw(3e-4, Adamw::<B>::default().weight_decay(0.1));
/// # let _ = optimizer;
/// ```
#[derive(Clone, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct Adamw<B: Backend> {
    /// Decay rate of the first moment. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub b1: Scalar<B>,
    /// Decay rate of the second moment. Default 0.999.
    #[serde(deserialize_with = "fraction")]
    pub b2: Scalar<B>,
    /// Added to the denominator outside the square root, for numerical stability. Default 1e-8.
    pub eps: Scalar<B>,
    /// Added to the denominator inside the square root. Default 0.
    pub eps_root: Scalar<B>,
    /// Decoupled weight decay: each step subtracts this times the learning rate times the parameter. Default 1e-4.
    pub weight_decay: ScalarOrSchedule<B>,
    /// Parameters that weight decay applies to; `None`, the default, for all.
    #[serde(rename = "weight_decay_mask", deserialize_with = "mask")]
    pub mask: Option<Filter<B>>,
    /// If true, uses Nesterov momentum. Default false.
    pub nesterov: bool,
}

impl<B: Backend> Default for Adamw<B> {
    fn default() -> Self {
        let ScaleByAdam { b1, b2, eps, eps_root, nesterov } = ScaleByAdam::default();
        Self { b1, b2, eps, eps_root, weight_decay: 1e-4.into(), mask: None, nesterov }
    }
}

setters! {
    Adamw:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into eps: Scalar<B>,
    into eps_root: Scalar<B>,
    into weight_decay: ScalarOrSchedule<B>,
    some mask: Filter<B>,
    plain nesterov: bool,
}

/// The chain of [`adamw`]: three transformations, whose `step` is one fused pass over each leaf.
#[derive(Clone)]
pub struct AdamwChain<B: Backend>((ScaleByAdam<B>, AddDecayedWeights<B>, ScaleByLearningRate<B>));

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AdamwChain<B> {
    type State = (ScaleByAdamState<B, P>, Option<Count<B>>, Option<Count<B>>);

    fn init(&self, params: &P) -> Self::State {
        self.0.init(params)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        self.0.update(updates, state, params)
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        let (scale_by_adam, add_decay, scale_by_rate) = &self.0;
        if scale_by_adam.nesterov {
            return self.0.step(updates, state, params);
        }
        let (adam, decay, rate) = state;
        let (weight_decay, decay) = add_decay.weight_decay.step(decay, &updates);
        let (factor, rate) = scale_by_rate.factor(rate, &updates);
        let fused = Fused { adam: scale_by_adam, factor, weight_decay, mask: add_decay.mask.as_ref() };
        let (params, adam) = fused.step(updates, adam, params);
        (params, (adam, decay, rate))
    }
}

/// The AdamW optimizer: Adam with decoupled weight decay. Loshchilov and Hutter, "Decoupled Weight Decay
/// Regularization" (2019).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::{Adamw, GradientTransformation, adamw};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let optimizer = adamw(0.1, Adamw::default());
/// let mut x = Array::<B, 1>::new(Tensor::from_floats([5.0], &Default::default()));
/// let mut state = optimizer.init(&x);
/// for _ in 0..200 {
///     let grads = Array::<B, 1>::new(x.val() * 2.0); // of x squared
///     (x, state) = optimizer.step(grads, state, x);
/// }
/// assert!(x.val().into_scalar().abs() < 0.5);
/// ```
pub fn adamw<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Adamw<B>) -> AdamwChain<B> {
    let Adamw { b1, b2, eps, eps_root, weight_decay, mask, nesterov } = options;
    AdamwChain((
        ScaleByAdam { b1, b2, eps, eps_root, nesterov },
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    ))
}

/// The NAdamW optimizer: AdamW with Nesterov momentum, whatever `nesterov` in the options. Dozat, "Incorporating
/// Nesterov Momentum into Adam" (2016).
pub fn nadamw<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Adamw<B>) -> AdamwChain<B> {
    adamw(learning_rate, Adamw { nesterov: true, ..options })
}

/// Options of [`amsgrad`].
pub type Amsgrad<B> = ScaleByAmsgrad<B>;

/// The chain of [`amsgrad`].
pub type AmsgradChain<B> = (ScaleByAmsgrad<B>, ScaleByLearningRate<B>);

/// The AMSGrad optimizer. Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond" (2018).
pub fn amsgrad<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Amsgrad<B>) -> AmsgradChain<B> {
    (options, scale_by_learning_rate(learning_rate))
}

/// Options of [`radam`].
pub type Radam<B> = ScaleByRadam<B>;

/// The chain of [`radam`].
pub type RadamChain<B> = (ScaleByRadam<B>, ScaleByLearningRate<B>);

/// The Rectified Adam optimizer. Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond" (2020).
pub fn radam<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>, options: Radam<B>) -> RadamChain<B> {
    (options, scale_by_learning_rate(learning_rate))
}

/// Options of [`adabelief`].
pub type Adabelief<B> = ScaleByBelief<B>;

/// The chain of [`adabelief`].
pub type AdabeliefChain<B> = (ScaleByBelief<B>, ScaleByLearningRate<B>);

/// The AdaBelief optimizer. Zhuang et al., "AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed
/// Gradients" (2020).
pub fn adabelief<B: Backend>(
    learning_rate: impl Into<ScalarOrSchedule<B>>,
    options: Adabelief<B>,
) -> AdabeliefChain<B> {
    (options, scale_by_learning_rate(learning_rate))
}
