use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Tree;

use super::moment::decayed_mean;
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, zeros_like},
    transformation::{increment, zero_count},
};

/// Rescales updates according to the Lion algorithm: the sign of an interpolation between momentum and gradient. The
/// fields are the hyperparameters; [`Default`] has optax's values.
///
/// The momentum decays by `b2`. The interpolation uses `b1`, which is smaller by default, so that the current gradient
/// has more weight.
///
/// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
#[derive(Clone, Debug)]
pub struct ScaleByLion<B: Backend> {
    /// Weight of the momentum in the interpolation. Default 0.9.
    pub b1: Scalar<B>,
    /// Decay rate of the momentum. Default 0.99.
    pub b2: Scalar<B>,
    /// Sign function. Default [`LionMode::Hard`].
    pub mode: LionMode,
}

/// The sign function of Lion.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LionMode {
    /// The exact sign.
    #[default]
    Hard,
    /// `tanh(beta x)`, with this `beta`.
    Smooth(f64),
    /// `x` clamped to `[-1, 1]`.
    Refined,
}

impl<B: Backend> Default for ScaleByLion<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.99.into(), mode: LionMode::Hard }
    }
}

/// Rescales updates according to the Lion algorithm; see [`ScaleByLion`].
pub fn scale_by_lion<B: Backend>(options: ScaleByLion<B>) -> ScaleByLion<B> {
    options
}

/// Step count and momentum.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByLionState<B: Backend, P> {
    /// Number of steps.
    pub count: Count<B>,
    /// Moving average of gradients, f32, or f64 for f64 parameters.
    pub mu: P,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByLion<B> {
    type State = ScaleByLionState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        ScaleByLionState { count: zero_count(params), mu: zeros_like(params) }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let sign = |x: Tensor<B, 1>| match self.mode {
            LionMode::Hard => x.sign(),
            LionMode::Smooth(beta) => x.mul_scalar(beta).tanh(),
            LionMode::Refined => x.clamp(-1.0, 1.0),
        };
        let [updates, mu] = elementwise([updates, state.mu], |[g, mu]| {
            let step = sign(decayed_mean(&self.b1, mu.clone(), g.clone()));
            [step, decayed_mean(&self.b2, mu, g)]
        });
        (updates, ScaleByLionState { count: increment(state.count), mu })
    }
}
