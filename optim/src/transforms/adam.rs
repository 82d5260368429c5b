use grove_backend::Backend;
use grove_tree::Tree;
use serde::Deserialize;

use super::moment::{FirstMoment, Ratio, bias_correction, decayed_square};
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, zeros_like},
    options::{fraction, setters},
    transformation::{has_no_leaves, next_step, zero_count},
};

/// Rescales updates according to the Adam algorithm: the moving average of gradients divided by the square root of the
/// moving average of their squares. Both averages are exponential and bias-corrected. The fields are the
/// hyperparameters; [`Default`] has optax's values.
///
/// Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015); with `nesterov` Dozat, "Incorporating Nesterov
/// Momentum into Adam" (2016).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct ScaleByAdam<B: Backend> {
    /// Decay rate of the first moment. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub b1: Scalar<B>,
    /// Decay rate of the second moment. Default 0.999.
    #[serde(deserialize_with = "fraction")]
    pub b2: Scalar<B>,
    /// Added to the denominator outside the square root, for numerical stability. Default 1e-8.
    pub eps: Scalar<B>,
    /// Added to the denominator inside the square root. Default 0. Required to differentiate through an optimizer.
    pub eps_root: Scalar<B>,
    /// If true, uses Nesterov momentum. Default false.
    pub nesterov: bool,
}

impl<B: Backend> Default for ScaleByAdam<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.999.into(), eps: 1e-8.into(), eps_root: 0.0.into(), nesterov: false }
    }
}

setters! {
    ScaleByAdam:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into eps: Scalar<B>,
    into eps_root: Scalar<B>,
    plain nesterov: bool,
}

/// Rescales updates according to the Adam algorithm; see [`ScaleByAdam`].
pub fn scale_by_adam<B: Backend>(options: ScaleByAdam<B>) -> ScaleByAdam<B> {
    options
}

/// Step count and moments.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByAdamState<B: Backend, P> {
    /// Number of steps.
    pub count: Count<B>,
    /// First moment, f32, or f64 for f64 parameters.
    pub mu: P,
    /// Second moment, f32, or f64 for f64 parameters.
    pub nu: P,
}

impl<B: Backend, P: Tree<B>> ScaleByAdamState<B, P> {
    /// Initial state.
    pub(crate) fn zero(params: &P) -> Self {
        Self { count: zero_count(params), mu: zeros_like(params), nu: zeros_like(params) }
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByAdam<B> {
    type State = ScaleByAdamState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        ScaleByAdamState::zero(params)
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let (count, t) = next_step(state.count, &updates);
        let moment = FirstMoment::new(&self.b1, t.clone(), self.nesterov);
        let (first, second) = (moment.correction.clone(), bias_correction(&self.b2, t)); // 1 - b1^t, 1 - b2^t
        // mean, nu -> (mean / first) / (sqrt(nu / second + eps_root) + eps)
        let ratio = Ratio { first: Some(first), second: Some(second), eps: &self.eps, eps_root: &self.eps_root };
        let [updates, mu, nu] = elementwise([updates, state.mu, state.nu], |[g, mu, nu]| {
            let nu = decayed_square(&self.b2, nu, g.clone());
            let (mean, mu) = moment.add(mu, g);
            [ratio.of(mean, nu.clone()), mu, nu]
        });
        (updates, ScaleByAdamState { count, mu, nu })
    }
}
