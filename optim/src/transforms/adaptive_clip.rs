use grove_backend::Backend;
use grove_tree::{AnyArray, Tree};

use crate::{
    GradientTransformation, Scalar,
    leafwise::{flat, is_outputs_first, leafwise, sum_axes, unflat},
};

/// Clips the norm of each unit's update to `clipping` times the norm of the unit's parameters. The fields are the
/// hyperparameters; `clipping` has no default.
///
/// A unit spans the reduced axes. By default these are all axes if at most one of them has a size other than 1, axis 0
/// of two or three axes (a unit is a column), and all axes but the last of four or five. This suits weights whose last
/// axis is the outputs, as in JAX's and grove's linear layers. In the matrices of recurrent cells, `[outputs, inputs]`,
/// a unit is a row. For convolution kernels in PyTorch's layout, `[out, in, h, w]`, set `axis` to 1, 2, 3 and use
/// [`masked`](crate::masked).
///
/// Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization" (2021).
#[derive(Clone, Debug)]
pub struct AdaptiveGradClip<B: Backend> {
    /// Maximum ratio of the update's norm to the parameters' norm.
    pub clipping: Scalar<B>,
    /// Lower bound of the parameters' norm. Default 1e-3.
    pub eps: Scalar<B>,
    /// The reduced axes; `None` chooses them by the number of axes.
    pub axis: Option<Vec<usize>>,
}

/// Clips updates to `clipping` times the norm of their parameters, unit by unit, with `eps` 1e-3 and default units; see
/// [`AdaptiveGradClip`].
pub fn adaptive_grad_clip<B: Backend>(clipping: impl Into<Scalar<B>>) -> AdaptiveGradClip<B> {
    AdaptiveGradClip { clipping: clipping.into(), eps: 1e-3.into(), axis: None }
}

/// Lower bound of the update's norm in the divisor.
const MIN_NORM: f64 = 1e-6;

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AdaptiveGradClip<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        let [updates, _] = leafwise([updates, params.clone()], |path, [g, p]: [AnyArray<B>; 2]| {
            let axes = match &self.axis {
                Some(axes) => axes.clone(),
                None => unit_axes(g.shape(), is_outputs_first(path)).unwrap_or_else(|| {
                    panic!("`{path}` has {} axes; set `axis` to the axes of a unit", g.shape().len())
                }),
            };
            let norms = |leaf: &AnyArray<B>| {
                let squares = leaf.clone().try_mul(leaf.clone()).expect("present and float");
                sum_axes(squares, &axes).sqrt()
            };
            let norm = norms(&g);
            let shape = norm.shape().to_vec();
            let norm = flat(norm);
            let least = self.eps.array_like(&norm).expand(norm.shape());
            let largest = self.clipping.times(flat(norms(&p)).max_pair(least));
            let within = norm.clone().lower(largest.clone());
            let factor = (largest / norm.clamp_min(MIN_NORM)).mask_fill(within, 1.0);
            [g.try_mul(unflat(factor, &shape)).expect("present and float"), p]
        });
        (updates, ())
    }
}

/// Returns the axes of a unit; `None` if the rank has no default.
fn unit_axes(shape: &[usize], outputs_first: bool) -> Option<Vec<usize>> {
    let long = shape.iter().filter(|&&size| size != 1).count();
    match shape.len() {
        rank if long <= 1 => Some((0..rank).collect()),
        2 if outputs_first => Some(vec![1]),
        2 | 3 => Some(vec![0]),
        rank @ (4 | 5) => Some((0..rank - 1).collect()),
        _ => None,
    }
}
