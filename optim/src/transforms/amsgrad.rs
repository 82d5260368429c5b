use grove_backend::Backend;
use grove_tree::Tree;
use serde::Deserialize;

use super::{
    ScaleByAdam,
    moment::{Ratio, bias_correction, corrected, decayed_mean, decayed_square},
};
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, zeros_like},
    options::{fraction, setters},
    transformation::{has_no_leaves, next_step, zero_count},
};

/// Rescales updates according to the AMSGrad algorithm: Adam with the maximum of all second moments so far in place of
/// the current one, so that the step size does not grow when the average forgets a large gradient. The fields are the
/// hyperparameters; [`Default`] has optax's values.
///
/// Reddi, Kale and Kumar, "On the Convergence of Adam and Beyond" (2018).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct ScaleByAmsgrad<B: Backend> {
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
    /// If true, corrects the bias of the first moment. Default true.
    pub bias_correction_mu: bool,
    /// If true, corrects the bias of the second moment before the maximum is taken. Default true.
    pub bias_correction_nu: bool,
}

impl<B: Backend> Default for ScaleByAmsgrad<B> {
    fn default() -> Self {
        let ScaleByAdam { b1, b2, eps, eps_root, .. } = ScaleByAdam::default();
        Self { b1, b2, eps, eps_root, bias_correction_mu: true, bias_correction_nu: true }
    }
}

setters! {
    ScaleByAmsgrad:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into eps: Scalar<B>,
    into eps_root: Scalar<B>,
    plain bias_correction_mu: bool,
    plain bias_correction_nu: bool,
}

/// Rescales updates according to the AMSGrad algorithm; see [`ScaleByAmsgrad`].
pub fn scale_by_amsgrad<B: Backend>(options: ScaleByAmsgrad<B>) -> ScaleByAmsgrad<B> {
    options
}

/// Step count, moments and the maximum second moment.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByAmsgradState<B: Backend, P> {
    /// Number of steps.
    pub count: Count<B>,
    /// First moment, f32, or f64 for f64 parameters.
    pub mu: P,
    /// Second moment, f32, or f64 for f64 parameters.
    pub nu: P,
    /// Maximum second moment so far, f32, or f64 for f64 parameters.
    pub nu_max: P,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByAmsgrad<B> {
    type State = ScaleByAmsgradState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        let zeros = || zeros_like(params);
        ScaleByAmsgradState { count: zero_count(params), mu: zeros(), nu: zeros(), nu_max: zeros() }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let (count, steps) = next_step(state.count, &updates);
        let first = self.bias_correction_mu.then(|| bias_correction(&self.b1, steps.clone()));
        let second = self.bias_correction_nu.then(|| bias_correction(&self.b2, steps.clone()));
        let ratio = Ratio { first, second: None, eps: &self.eps, eps_root: &self.eps_root };
        let trees = [updates, state.mu, state.nu, state.nu_max];
        let [updates, mu, nu, nu_max] = elementwise(trees, |[g, mu, nu, nu_max]| {
            let mu = decayed_mean(&self.b1, mu, g.clone());
            let nu = decayed_square(&self.b2, nu, g);
            let nu_max = nu_max.max_pair(corrected(nu.clone(), &second));
            [ratio.of(mu.clone(), nu_max.clone()), mu, nu, nu_max]
        });
        (updates, ScaleByAmsgradState { count, mu, nu, nu_max })
    }
}
