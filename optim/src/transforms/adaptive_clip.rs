use grove_backend::Backend;
use grove_tree::{AnyArray, Tree};

use crate::{
    GradientTransformation, Scalar,
    leafwise::{flat, leafwise, sum_axes, unflat},
};

/// Limits the norm of each unit's update to a part of the norm of the unit's parameters. The fields are the
/// hyperparameters; only `clipping` has no usual value.
///
/// A unit is what lies along the reduced axes: all of a leaf with one axis, the columns of one with two or three
/// (axis 0 is reduced), the last axis's slices of one with four or five. That is right for weights that end with their
/// outputs, as JAX's and grove's linear layers have them; for convolutions in PyTorch's order, `[out, in, h, w]`, set
/// `axis` to 1, 2, 3 and use [`masked`](crate::masked).
///
/// Brock et al., "High-Performance Large-Scale Image Recognition Without Normalization" (2021).
#[derive(Clone, Debug)]
pub struct AdaptiveGradClip<B: Backend> {
    /// The largest ratio of the two norms.
    pub clipping: Scalar<B>,
    /// The least that the norm of parameters is taken for: 1e-3.
    pub eps: Scalar<B>,
    /// The reduced axes; by the number of axes where there is nothing here.
    pub axis: Option<Vec<usize>>,
}

/// Adaptive gradient clipping with `eps` 1e-3 and units by the number of axes; see [`AdaptiveGradClip`].
pub fn adaptive_grad_clip<B: Backend>(clipping: impl Into<Scalar<B>>) -> AdaptiveGradClip<B> {
    AdaptiveGradClip { clipping: clipping.into(), eps: 1e-3.into(), axis: None }
}

/// A gradient is not divided by less than this.
const LEAST_NORM: f64 = 1e-6;

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AdaptiveGradClip<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        let [updates, _] = leafwise([updates, params.clone()], |path, [g, p]: [AnyArray<B>; 2]| {
            let axes = match &self.axis {
                Some(axes) => axes.clone(),
                None => unit_axes(g.shape()).unwrap_or_else(|| {
                    panic!("`{path}` has {} axes; say in `axis` which make up a unit", g.shape().len())
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
            let factor = (largest / norm.clamp_min(LEAST_NORM)).mask_fill(within, 1.0);
            [g.try_mul(unflat(factor, &shape)).expect("present and float"), p]
        });
        (updates, ())
    }
}

/// The axes along which a unit lies.
fn unit_axes(shape: &[usize]) -> Option<Vec<usize>> {
    let long = shape.iter().filter(|&&size| size != 1).count();
    match shape.len() {
        rank if long <= 1 => Some((0..rank).collect()),
        2 | 3 => Some(vec![0]),
        rank @ (4 | 5) => Some((0..rank - 1).collect()),
        _ => None,
    }
}
