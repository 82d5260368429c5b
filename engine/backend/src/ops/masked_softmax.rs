//! Softmax of attention scores.

use burn::tensor::{Shape, Tensor};

use super::{
    Backend, BatchAxis, KeyRanges, Outcome, Residuals, Rules, Shapes, Spec, Values, Wanted, float, key_ranges::check,
    precision::cast, primitive,
};

/// Softmax of `scale * scores` over the last axis, restricted to the keys that each query attends to; masked keys get
/// weight 0.
///
/// A row of minus infinities (a fully masked query) gives zeros, and its gradient is zero.
///
/// # Shapes
/// - inputs: scores `[b, n_head, t, s]`; optional padding and lengths `[b]`, see [`KeyRanges`]
/// - output: the shape of the scores
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct MaskedSoftmax {
    /// Scale of the scores.
    #[serde(with = "grove_kernels::exact")]
    pub scale: f64,
    /// If true, each query attends to its own key and those before it; see [`KeyRanges::causal`].
    pub causal: bool,
    /// Sliding window; see [`KeyRanges::window`].
    pub window: Option<usize>,
}

impl Rules for MaskedSoftmax {
    const IN_F32: bool = true;
    const BATCH_AXIS: Option<BatchAxis> = BatchAxis::of(&[0, 1, 2]);

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape: [usize; 4] = inputs.dims("masked_softmax", 0);
        check(self.causal, self.window, shape[0], inputs, 1);
        vec![shape.into()]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().outputs([0])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let ranges = KeyRanges::take(self.causal, self.window, &mut inputs, 1);
        let scores = inputs.take_tensor::<4>(0).mul_scalar(self.scale);
        let sizes @ [_, _, t, s] = scores.dims();
        // candle has no maximum of no elements, and Burn cannot expand to none.
        if sizes.contains(&0) {
            return Outcome::new([primitive(scores)]);
        }
        let scores = match ranges.mask([t, s], &scores.device()) {
            Some(hidden) => scores.mask_fill(hidden.expand(sizes), f32::NEG_INFINITY),
            None => scores,
        };
        // The maximum is clamped to finite values and the sum to positive ones, so that a fully masked row gives zeros.
        let largest = scores.clone().detach().max_dim(3).clamp_min(f32::MIN);
        let exponentials = (scores - largest).exp();
        let sums = exponentials.clone().sum_dim(3).clamp_min(f32::MIN_POSITIVE);
        Outcome::new([primitive(exponentials / sums)])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let (weights, grad): (Tensor<B, 4>, Tensor<B, 4>) = (residuals.take_tensor(0), grads.take_tensor(0));
        let mean = (weights.clone() * grad.clone()).sum_dim(3);
        Values::floats([primitive((grad - mean) * weights.mul_scalar(self.scale))])
    }
}

/// Gradient of the scores, from the weights and their gradient.
pub(super) fn masked_softmax_vjp<B: Backend>(weights: Tensor<B, 4>, grad: Tensor<B, 4>, scale: f64) -> Tensor<B, 4> {
    // The ranges are irrelevant here, because masked keys have weight 0.
    let softmax = MaskedSoftmax { scale, causal: false, window: None };
    let dtype = grad.dtype();
    let wanted = Wanted::new(vec![Some(Spec { shape: grad.shape(), dtype })]);
    let (weights, grad) = (Values::default().with(weights), Values::default().with(grad));
    let mut grads = B::run_vjp(&softmax.into(), weights, grad, &wanted);
    float(cast::<B>(grads.take_float(0), dtype))
}
