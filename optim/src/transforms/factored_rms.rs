use grove_backend::Backend;
use grove_tree::{NamedLeaves, Tree, leaves};

use super::moment::decayed_mean;
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{filled, flat, leafwise, mean_axis, precision, unflat},
    transformation::{has_no_leaves, increment, steps, zero_count},
};

/// Rescales updates according to the Adafactor algorithm: gradients divided by the square root of the moving average of
/// their squares. For large matrices, only the averages over rows and columns are stored. The fields are the
/// hyperparameters; [`Default`] has optax's values.
///
/// The decay rate at step `t`, counted from 1, is `1 - (t - step_offset)^-decay_rate`, so the average needs no bias
/// correction. A leaf is factored along its two largest axes if both have at least `min_dim_size_to_factor` elements.
///
/// Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018).
#[derive(Clone, Debug)]
pub struct ScaleByFactoredRms<B: Backend> {
    /// If true, second moments are factored. Default true.
    pub factored: bool,
    /// Exponent of the decay rate. Default 0.8.
    pub decay_rate: Scalar<B>,
    /// Subtracted from the step count: the first step of a fine-tuning phase. Default 0.
    pub step_offset: u64,
    /// Minimum size of both axes for a leaf to be factored. Default 128.
    pub min_dim_size_to_factor: usize,
    /// Added to the squares for numerical stability. Default 1e-30.
    pub epsilon: Scalar<B>,
}

impl<B: Backend> Default for ScaleByFactoredRms<B> {
    fn default() -> Self {
        Self {
            factored: true,
            decay_rate: 0.8.into(),
            step_offset: 0,
            min_dim_size_to_factor: 128,
            epsilon: 1e-30.into(),
        }
    }
}

/// Rescales updates according to the Adafactor algorithm; see [`ScaleByFactoredRms`].
pub fn scale_by_factored_rms<B: Backend>(options: ScaleByFactoredRms<B>) -> ScaleByFactoredRms<B> {
    options
}

/// Step count and moving averages of squares, by parameter path. A parameter has either `v_row` and `v_col`, or `v`.
/// (optax stores an array of one zero for the missing ones.)
#[derive(Tree, Clone, Debug)]
pub struct FactoredState<B: Backend> {
    /// Number of steps.
    pub count: Count<B>,
    /// Averages over the largest axis, which is removed from the shape.
    pub v_row: NamedLeaves<B>,
    /// Averages over the second-largest axis, which is removed from the shape.
    pub v_col: NamedLeaves<B>,
    /// Unfactored averages of the other leaves.
    pub v: NamedLeaves<B>,
}

impl<B: Backend> ScaleByFactoredRms<B> {
    /// Returns the second-largest and the largest axis; `None` if the leaf is not factored. Of axes of equal size, the
    /// later one counts as larger.
    fn axes(&self, shape: &[usize]) -> Option<(usize, usize)> {
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        axes.sort_by_key(|&axis| shape[axis]);
        let (&largest, rest) = axes.split_last()?;
        let &second = rest.last()?;
        (self.factored && shape[second] >= self.min_dim_size_to_factor).then_some((second, largest))
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByFactoredRms<B> {
    type State = FactoredState<B>;

    fn init(&self, params: &P) -> Self::State {
        let empty = NamedLeaves::new;
        let mut state = FactoredState { count: zero_count(params), v_row: empty(), v_col: empty(), v: empty() };
        for (path, leaf) in leaves(params).into_iter().filter(|(_, leaf)| leaf.dtype().is_float()) {
            let shape = leaf.shape();
            match self.axes(shape) {
                Some((second, largest)) => {
                    state.v_row.insert(path.clone(), filled(&leaf, &without(shape, largest), 0.0));
                    state.v_col.insert(path, filled(&leaf, &without(shape, second), 0.0));
                }
                None => drop(state.v.insert(path, filled(&leaf, shape, 0.0))),
            }
        }
        state
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let FactoredState { count, mut v_row, mut v_col, mut v } = state;
        let steps = steps(&count, precision(&updates)).add_scalar(1.0 - self.step_offset as f64);
        let exponent = self.decay_rate.negated().array_like(&steps);
        let decay = Scalar::Array(steps.powf(exponent).neg().add_scalar(1.0));
        let [updates] = leafwise([updates], |path, [g]| {
            let shape = g.shape().to_vec();
            let take = |means: &mut NamedLeaves<B>| {
                means.remove(path.as_str()).unwrap_or_else(|| {
                    panic!(
                        "`{path}` has a gradient but no second moment: create the state with `init` from these \
                         parameters"
                    )
                })
            };
            let flat_g = flat(g.clone());
            let squares = self.epsilon.plus(flat_g.clone() * flat_g.clone());
            let Some((second, largest)) = self.axes(&shape) else {
                let mean = decayed_mean(&decay, flat(take(&mut v)), squares);
                let update = mean.clone().sqrt().recip() * flat_g;
                v.insert(path.to_string(), unflat(mean, &shape));
                return [unflat(update, &shape)];
            };
            let squares = unflat(squares, &shape);
            // Averages with the rank of the leaf, and size 1 along the reduced axis.
            let next = |means: &mut NamedLeaves<B>, axis: usize| {
                let now = mean_axis(squares.clone(), axis);
                let kept = now.shape().to_vec();
                let mean = unflat(decayed_mean(&decay, flat(take(means)), flat(now)), &kept);
                means.insert(path.to_string(), mean.clone().reshape(without(&shape, axis)));
                mean
            };
            let (row, column) = (next(&mut v_row, largest), next(&mut v_col, second));
            let relative = row.clone().try_div(mean_axis(row, second)).expect("present and float");
            let update = [relative, column].into_iter().try_fold(g, |g, mean| {
                let kept = mean.shape().to_vec();
                g.try_mul(unflat(flat(mean).sqrt().recip(), &kept))
            });
            [update.expect("present and float")]
        });
        (updates, FactoredState { count: increment(count), v_row, v_col, v })
    }
}

/// Returns a shape without one of its axes.
fn without(shape: &[usize], axis: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape.remove(axis);
    shape
}
