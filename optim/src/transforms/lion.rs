use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Tree;

use super::moment::decayed_mean;
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, zeros_like},
    transformation::{increment, zero_count},
};

/// Lion's rescaling: the sign of a decaying mean. The fields are the hyperparameters; [`Default`] has optax's values.
///
/// The mean that is remembered decays by `b2`; the sign is taken of one that lets the current gradient count for more.
///
/// Chen et al., "Symbolic Discovery of Optimization Algorithms" (2023).
#[derive(Clone, Debug)]
pub struct ScaleByLion<B: Backend> {
    /// How much of the remembered mean goes into a step: 0.9.
    pub b1: Scalar<B>,
    /// How much of the remembered mean stays: 0.99.
    pub b2: Scalar<B>,
    /// What stands for the sign: the sign.
    pub mode: LionMode,
}

/// What Lion takes for the sign of `x`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum LionMode {
    /// The sign.
    #[default]
    Hard,
    /// `tanh(beta x)`, with this `beta`.
    Smooth(f64),
    /// `x` limited to `[-1, 1]`.
    Refined,
}

impl<B: Backend> Default for ScaleByLion<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.99.into(), mode: LionMode::Hard }
    }
}

/// Lion's rescaling with these options; see [`ScaleByLion`].
pub fn scale_by_lion<B: Backend>(options: ScaleByLion<B>) -> ScaleByLion<B> {
    options
}

/// Step count and mean.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByLionState<B: Backend, P> {
    /// Steps so far.
    pub count: Count<B>,
    /// Decaying mean, f32.
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
