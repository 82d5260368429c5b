use grove_backend::Backend;
use grove_tree::Tree;
use serde::Deserialize;

use super::{
    ScaleByAdamState,
    moment::{FirstMoment, Ratio, bias_correction, decayed_square},
};
use crate::{
    GradientTransformation, Scalar,
    leafwise::elementwise,
    options::{fraction, setters},
    transformation::{has_no_leaves, next_step},
};

/// Rescales updates according to the AdaBelief algorithm: Adam with the squared deviations of gradients from their
/// moving average in place of their squares, so that steps are large where gradients agree with the average. The fields
/// are the hyperparameters; [`Default`] has optax's values.
///
/// Zhuang et al., "AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed Gradients" (2020).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct ScaleByBelief<B: Backend> {
    /// Decay rate of the first moment. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub b1: Scalar<B>,
    /// Decay rate of the second moment. Default 0.999.
    #[serde(deserialize_with = "fraction")]
    pub b2: Scalar<B>,
    /// Added to the denominator outside the square root, for numerical stability. Default 1e-16.
    pub eps: Scalar<B>,
    /// Added to the second moment at each step, including the stored one. Default 1e-16.
    pub eps_root: Scalar<B>,
    /// If true, uses Nesterov momentum. Default false.
    pub nesterov: bool,
}

impl<B: Backend> Default for ScaleByBelief<B> {
    fn default() -> Self {
        Self { b1: 0.9.into(), b2: 0.999.into(), eps: 1e-16.into(), eps_root: 1e-16.into(), nesterov: false }
    }
}

setters! {
    ScaleByBelief:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into eps: Scalar<B>,
    into eps_root: Scalar<B>,
    plain nesterov: bool,
}

/// Rescales updates according to the AdaBelief algorithm; see [`ScaleByBelief`].
pub fn scale_by_belief<B: Backend>(options: ScaleByBelief<B>) -> ScaleByBelief<B> {
    options
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByBelief<B> {
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
        let (first, second) = (moment.correction.clone(), bias_correction(&self.b2, t));
        let zero = Scalar::Number(0.0);
        let ratio = Ratio { first: Some(first), second: Some(second), eps: &self.eps, eps_root: &zero };
        let [updates, mu, nu] = elementwise([updates, state.mu, state.nu], |[g, mu, nu]| {
            let (mean, mu) = moment.add(mu, g.clone());
            let nu = self.eps_root.plus(decayed_square(&self.b2, nu, g - mu.clone()));
            [ratio.of(mean, nu.clone()), mu, nu]
        });
        (updates, ScaleByAdamState { count, mu, nu })
    }
}
