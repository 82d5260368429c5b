use grove_backend::Backend;
use grove_tree::Tree;

use crate::{
    GradientTransformation, Scalar,
    leafwise::{elementwise, filled_like},
};

/// AdaGrad's rescaling: gradients over the root of the sum of all their squares so far. The fields are the
/// hyperparameters; [`Default`] has optax's values.
///
/// Duchi, Hazan and Singer, "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization" (2011).
#[derive(Clone, Debug)]
pub struct ScaleByRss<B: Backend> {
    /// The sum before the first step: 0.1.
    pub initial_accumulator_value: f64,
    /// Added below the root: 1e-7.
    pub eps: Scalar<B>,
}

impl<B: Backend> Default for ScaleByRss<B> {
    fn default() -> Self {
        Self { initial_accumulator_value: 0.1, eps: 1e-7.into() }
    }
}

/// AdaGrad's rescaling with these options; see [`ScaleByRss`].
pub fn scale_by_rss<B: Backend>(options: ScaleByRss<B>) -> ScaleByRss<B> {
    options
}

/// The sum of squares.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByRssState<P> {
    /// Sum of the squares of all gradients, f32.
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
            // Where nothing has ever come in, nothing goes out, eps or not.
            let factor = self.eps.plus(sum.clone()).sqrt().recip().mask_fill(sum.clone().lower_equal_elem(0.0), 0.0);
            [factor * g, sum]
        });
        (updates, ScaleByRssState { sum_of_squares })
    }
}
