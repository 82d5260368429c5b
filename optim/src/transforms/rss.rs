use grove_backend::Backend;
use grove_tree::Tree;
use serde::Deserialize;

use crate::{
    GradientTransformation, Scalar,
    leafwise::{elementwise, filled_like},
    options::{nonnegative, setters},
};

/// Rescales updates according to the AdaGrad algorithm: gradients divided by the square root of the sum of all their
/// squares so far. The fields are the hyperparameters; [`Default`] has optax's values.
///
/// Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (2011).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct ScaleByRss<B: Backend> {
    /// Initial sum of squares. Default 0.1.
    #[serde(deserialize_with = "nonnegative")]
    pub initial_accumulator_value: f64,
    /// Added to the denominator inside the square root. Default 1e-7.
    pub eps: Scalar<B>,
}

impl<B: Backend> Default for ScaleByRss<B> {
    fn default() -> Self {
        Self { initial_accumulator_value: 0.1, eps: 1e-7.into() }
    }
}

setters! {
    ScaleByRss:
    plain initial_accumulator_value: f64,
    into eps: Scalar<B>,
}

/// Rescales updates according to the AdaGrad algorithm; see [`ScaleByRss`].
pub fn scale_by_rss<B: Backend>(options: ScaleByRss<B>) -> ScaleByRss<B> {
    options
}

/// Sum of squares.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByRssState<P> {
    /// Sum of all squared gradients, f32, or f64 for f64 parameters.
    pub sum_of_squares: P,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByRss<B> {
    type State = ScaleByRssState<P>;

    fn init(&self, params: &P) -> Self::State {
        ScaleByRssState { sum_of_squares: filled_like(params, self.initial_accumulator_value) }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let [updates, sum_of_squares] = elementwise([updates, state.sum_of_squares], |[g, sum]| {
            let sum = sum + g.clone() * g.clone();
            // If all gradients of an element were 0 so far, its update is 0, whatever `eps` is.
            let factor = self.eps.plus(sum.clone()).sqrt().recip().mask_fill(sum.clone().lower_equal_elem(0.0), 0.0);
            [factor * g, sum]
        });
        (updates, ScaleByRssState { sum_of_squares })
    }
}
