use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Tree;

use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, zeros_like},
    transformation::{increment, zero_count},
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

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByAdam<B> {
    type State = ScaleByAdamState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        ScaleByAdamState { count: zero_count(params), mu: zeros_like(params), nu: zeros_like(params) }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let count = increment(state.count);
        let steps = count.val().float();
        let correction1 = bias_correction(&self.b1, steps.clone());
        let correction2 = bias_correction(&self.b2, steps.clone());
        let next1 = bias_correction(&self.b1, steps.add_scalar(1.0));
        let [updates, mu, nu] = elementwise([updates, state.mu, state.nu], |[g, mu, nu]| {
            let mu = decayed_mean(&self.b1, mu, g.clone());
            let nu = decayed_mean(&self.b2, nu, g.clone() * g.clone());
            let mu_hat = if self.nesterov {
                self.b1.times(mu.clone()) / next1.clone() + self.b1.complement().times(g) / correction1.clone()
            } else {
                mu.clone() / correction1.clone()
            };
            let nu_hat = nu.clone() / correction2.clone();
            let root = self.eps.plus(self.eps_root.plus(nu_hat).sqrt());
            [mu_hat / root, mu, nu]
        });
        (updates, ScaleByAdamState { count, mu, nu })
    }
}

/// `decay * mean + (1 - decay) * x`
pub(crate) fn decayed_mean<B: Backend>(decay: &Scalar<B>, mean: Tensor<B, 1>, x: Tensor<B, 1>) -> Tensor<B, 1> {
    decay.complement().times(x) + decay.times(mean)
}

/// `1 - decay^count`: what a decaying mean that began at zero is too small by.
pub(crate) fn bias_correction<B: Backend>(decay: &Scalar<B>, count: Tensor<B, 1>) -> Tensor<B, 1> {
    decay.array(&count.device()).powf(count).neg().add_scalar(1.0)
}
