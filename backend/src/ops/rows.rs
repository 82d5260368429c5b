//! Operations on rows, written with Burn's: the defaults of [`Backend`].

use burn::tensor::{
    Int, Tensor, TensorMetadata,
    ops::{FloatTensor, IntTensor},
};

use super::{
    Backend, KeyRanges, at_least_f32, float,
    precision::{cast, is_half, widened},
    primitive,
};

pub(super) fn attention_weights<B: Backend>(
    scores: FloatTensor<B>,
    scale: f64,
    visible: KeyRanges<B>,
) -> FloatTensor<B> {
    let dtype = scores.dtype();
    if is_half(dtype) {
        return cast::<B>(B::attention_weights(widened::<B>(scores), scale, visible), dtype);
    }
    let scores = float::<B, 4>(scores).mul_scalar(scale);
    let sizes @ [b, _, t, s] = scores.dims();
    visible.check(b);
    let scores = match visible.hidden([t, s], &scores.device()) {
        Some(hidden) => scores.mask_fill(hidden.expand(sizes), f32::NEG_INFINITY),
        None => scores,
    };
    // The largest is finite and the sum is not 0, so that a row from which all is hidden becomes zeros.
    let largest = scores.clone().detach().max_dim(3).clamp_min(f32::MIN);
    let exponentials = (scores - largest).exp();
    let sums = exponentials.clone().sum_dim(3).clamp_min(f32::MIN_POSITIVE);
    primitive(exponentials / sums)
}

pub(super) fn attention_weights_backward<B: Backend>(
    weights: FloatTensor<B>,
    grad: FloatTensor<B>,
    scale: f64,
) -> FloatTensor<B> {
    let dtype = grad.dtype();
    if is_half(dtype) {
        return cast::<B>(B::attention_weights_backward(widened::<B>(weights), widened::<B>(grad), scale), dtype);
    }
    let (weights, grad) = (float::<B, 4>(weights), float::<B, 4>(grad));
    let mean = (weights.clone() * grad.clone()).sum_dim(3);
    primitive((grad - mean) * weights.mul_scalar(scale))
}

/// How rows are normalised.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowNormOptions {
    /// Whether the mean is taken from each row first: in a layer norm, but not in an RMS norm.
    pub centred: bool,
    /// What is added to the variance.
    pub eps: f64,
}

pub(super) fn row_norm<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    options: RowNormOptions,
) -> (FloatTensor<B>, FloatTensor<B>) {
    let dtype = x.dtype();
    if options.centred && is_half(dtype) {
        let (y, stats) = B::row_norm(widened::<B>(x), widened::<B>(weight), bias.map(widened::<B>), options);
        return (cast::<B>(y, dtype), stats);
    }
    let x = at_least_f32(float::<B, 2>(x));
    let scale_or_shift = |x| float::<B, 1>(cast::<B>(x, dtype)).unsqueeze::<2>();
    let mean = if options.centred { x.clone().mean_dim(1) } else { x.clone().narrow(1, 0, 1).zeros_like() }; // [rows, 1]
    let centred = if options.centred { x - mean.clone() } else { x };
    let inverse = centred.clone().powi_scalar(2).mean_dim(1).add_scalar(options.eps).sqrt().recip(); // [rows, 1]
    // LLaMA's layers round before they scale.
    let y = (centred * inverse.clone()).cast(dtype) * scale_or_shift(weight);
    let y = match bias {
        Some(bias) => y + scale_or_shift(bias),
        None => y,
    };
    (primitive(y), primitive(Tensor::cat(vec![mean, inverse], 1)))
}

pub(super) fn row_norm_backward<B: Backend>(
    [x, weight]: [FloatTensor<B>; 2],
    stats: FloatTensor<B>,
    grad: FloatTensor<B>,
    options: RowNormOptions,
    needs: [bool; 3],
) -> [Option<FloatTensor<B>>; 3] {
    let (dtype, of_weight) = (grad.dtype(), weight.dtype());
    if is_half(dtype) {
        let inputs = [x, weight].map(widened::<B>);
        let [dx, d_weight, d_bias] = B::row_norm_backward(inputs, stats, widened::<B>(grad), options, needs);
        let narrowed = |x: Option<FloatTensor<B>>, dtype| x.map(|x| cast::<B>(x, dtype));
        return [narrowed(dx, dtype), narrowed(d_weight, of_weight), narrowed(d_bias, of_weight)];
    }
    let (x, grad, stats) = (float::<B, 2>(x), float::<B, 2>(grad), float::<B, 2>(stats));
    let weight = float::<B, 1>(cast::<B>(weight, dtype));
    let (mean, inverse) = (stats.clone().narrow(1, 0, 1), stats.narrow(1, 1, 1));
    let normal = if options.centred { x - mean } else { x } * inverse.clone();
    let sum = |x: Tensor<B, 2>| cast::<B>(primitive(x.sum_dim(0).squeeze_dim::<1>(0)), of_weight);
    let d_weight = needs[1].then(|| sum(grad.clone() * normal.clone()));
    let d_bias = needs[2].then(|| sum(grad.clone()));
    let dx = needs[0].then(|| {
        let scaled = grad * weight.unsqueeze();
        let along = (scaled.clone() * normal.clone()).mean_dim(1);
        let rest = if options.centred { scaled.clone() - scaled.mean_dim(1) } else { scaled };
        primitive((rest - normal * along) * inverse)
    });
    [dx, d_weight, d_bias]
}

pub(super) fn nll<B: Backend>(logits: FloatTensor<B>, labels: IntTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
    let dtype = logits.dtype();
    if is_half(dtype) {
        let (losses, normaliser) = B::nll(widened::<B>(logits), labels);
        return (cast::<B>(losses, dtype), normaliser);
    }
    let logits = float::<B, 2>(logits);
    let labels = Tensor::<B, 1, Int>::from_primitive(labels);
    let rows = labels.dims()[0];
    let largest = logits.clone().detach().max_dim(1);
    let shifted = logits - largest.clone(); // [rows, classes], at most 0
    // The normaliser is subtracted from the label's logit alone, not from every class.
    let log = shifted.clone().exp().sum_dim(1).log(); // [rows, 1]
    let label = shifted.gather(1, labels.reshape([rows, 1]));
    (primitive((log.clone() - label).reshape([rows])), primitive((log + largest).reshape([rows])))
}

pub(super) fn nll_backward<B: Backend>(
    logits: FloatTensor<B>,
    labels: IntTensor<B>,
    normaliser: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let dtype = logits.dtype();
    if is_half(dtype) {
        let [logits, normaliser, grad] = [logits, normaliser, grad].map(widened::<B>);
        return cast::<B>(B::nll_backward(logits, labels, normaliser, grad), dtype);
    }
    let (logits, labels) = (float::<B, 2>(logits), Tensor::<B, 1, Int>::from_primitive(labels));
    let rows = labels.dims()[0];
    let (normaliser, grad) = (float::<B, 1>(normaliser).reshape([rows, 1]), float::<B, 1>(grad).reshape([rows, 1]));
    let softmax = (logits - normaliser).exp() * grad.clone();
    let update = burn::tensor::IndexingUpdateOp::Add;
    primitive(softmax.scatter(1, labels.reshape([rows, 1]), grad.neg(), update))
}
