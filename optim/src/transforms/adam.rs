use grove_backend::Backend;
use grove_tree::Tree;

use super::moment::{Ratio, bias_correction, decayed_mean, decayed_square, look_ahead};
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, precision, zeros_like},
    transformation::{increment, steps, zero_count},
};

/// Adam's rescaling: the mean of the gradients over the root of the mean of their squares, both decaying and corrected
/// for having begun at zero. The fields are the hyperparameters; [`Default`] has optax's values.
///
/// Kingma and Ba, "Adam: A Method for Stochastic Optimization" (2015); with `nesterov` Dozat, "Incorporating Nesterov
/// Momentum into Adam" (2016).
#[derive(Clone, Debug)]
pub struct ScaleByAdam<B: Backend> {
    /// How much of the first moment stays at each step: 0.9.
    pub b1: Scalar<B>,
    /// How much of the second moment stays at each step: 0.999.
    pub b2: Scalar<B>,
    /// Added to the root: 1e-8.
    pub eps: Scalar<B>,
    /// Added below the root: 0. Needed to differentiate through an optimizer.
    pub eps_root: Scalar<B>,
    /// Whether to look one step ahead: no.
    pub nesterov: bool,
}

impl<B: Backend> Default for ScaleByAdam<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.999.into(), eps: 1e-8.into(), eps_root: 0.0.into(), nesterov: false }
    }
}

/// Adam's rescaling with these options; see [`ScaleByAdam`].
pub fn scale_by_adam<B: Backend>(options: ScaleByAdam<B>) -> ScaleByAdam<B> {
    options
}

/// Step count and moments.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByAdamState<B: Backend, P> {
    /// Steps so far.
    pub count: Count<B>,
    /// First moment, f32.
    pub mu: P,
    /// Second moment, f32.
    pub nu: P,
}

impl<B: Backend, P: Tree<B>> ScaleByAdamState<B, P> {
    /// Before the first step.
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
        let count = increment(state.count);
        let steps = steps(&count, precision(&updates));
        let first = bias_correction(&self.b1, steps.clone());
        let next = self.nesterov.then(|| bias_correction(&self.b1, steps.clone().add_scalar(1.0)));
        let second = bias_correction(&self.b2, steps);
        let ratio =
            Ratio { first: Some(first.clone()), second: Some(second), eps: &self.eps, eps_root: &self.eps_root };
        let [updates, mu, nu] = elementwise([updates, state.mu, state.nu], |[g, mu, nu]| {
            let mu = decayed_mean(&self.b1, mu, g.clone());
            let (mean, nu) = match &next {
                Some(next) => {
                    let nu = decayed_square(&self.b2, nu, g.clone());
                    (look_ahead(&self.b1, mu.clone(), g, first.clone(), next.clone()), nu)
                }
                None => (mu.clone(), decayed_square(&self.b2, nu, g)),
            };
            [ratio.of(mean, nu.clone()), mu, nu]
        });
        (updates, ScaleByAdamState { count, mu, nu })
    }
}
