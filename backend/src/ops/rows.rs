//! Operations on rows, written with Burn's: the defaults of [`Backend`].

use burn::tensor::{
    Bool, Int, Tensor, activation,
    ops::{FloatTensor, IntTensor},
};

use super::{Backend, float, primitive};

pub(super) fn attention_weights<B: Backend>(scores: FloatTensor<B>, scale: f64, causal: bool) -> FloatTensor<B> {
    let scores = float::<B, 4>(scores).mul_scalar(scale);
    let [_, _, t, s] = scores.dims();
    let scores = if causal {
        let device = scores.device();
        let rows = Tensor::<B, 1, Int>::arange((s - t) as i64..s as i64, &device).reshape([t, 1]);
        let columns = Tensor::<B, 1, Int>::arange(0..s as i64, &device).reshape([1, s]);
        let hidden: Tensor<B, 2, Bool> = columns.repeat_dim(0, t).greater(rows.repeat_dim(1, s));
        scores.clone().mask_fill(hidden.unsqueeze::<4>().expand(scores.dims()), f32::NEG_INFINITY)
    } else {
        scores
    };
    primitive(activation::softmax(scores, 3))
}

pub(super) fn attention_weights_backward<B: Backend>(
    weights: FloatTensor<B>,
    grad: FloatTensor<B>,
    scale: f64,
) -> FloatTensor<B> {
    let (weights, grad) = (float::<B, 4>(weights), float::<B, 4>(grad));
    let mean = (weights.clone() * grad.clone()).sum_dim(3);
    primitive((grad - mean) * weights.mul_scalar(scale))
}

pub(super) fn normalize<B: Backend>(x: FloatTensor<B>, eps: f64) -> (FloatTensor<B>, FloatTensor<B>) {
    let x = float::<B, 2>(x);
    let centred = x.clone() - x.mean_dim(1);
    let variance = centred.clone().powi_scalar(2).mean_dim(1); // [rows, 1]
    let std = variance.add_scalar(eps).sqrt();
    (primitive(centred / std.clone()), primitive(std.recip()))
}

pub(super) fn normalize_backward<B: Backend>(
    y: FloatTensor<B>,
    inverse_std: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let (y, inverse_std, grad) = (float::<B, 2>(y), float::<B, 2>(inverse_std), float::<B, 2>(grad));
    let along = (grad.clone() * y.clone()).mean_dim(1);
    primitive((grad.clone() - grad.mean_dim(1) - y * along) * inverse_std)
}

pub(super) fn rms_normalize<B: Backend>(x: FloatTensor<B>, eps: f64) -> (FloatTensor<B>, FloatTensor<B>) {
    let x = float::<B, 2>(x);
    let inverse_rms = x.clone().powi_scalar(2).mean_dim(1).add_scalar(eps).sqrt().recip(); // [rows, 1]
    (primitive(x * inverse_rms.clone()), primitive(inverse_rms))
}

pub(super) fn rms_normalize_backward<B: Backend>(
    y: FloatTensor<B>,
    inverse_rms: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let (y, inverse_rms, grad) = (float::<B, 2>(y), float::<B, 2>(inverse_rms), float::<B, 2>(grad));
    let along = (grad.clone() * y.clone()).mean_dim(1);
    primitive((grad - y * along) * inverse_rms)
}

pub(super) fn nll<B: Backend>(logits: FloatTensor<B>, labels: IntTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
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
    let (logits, labels) = (float::<B, 2>(logits), Tensor::<B, 1, Int>::from_primitive(labels));
    let rows = labels.dims()[0];
    let (normaliser, grad) = (float::<B, 1>(normaliser).reshape([rows, 1]), float::<B, 1>(grad).reshape([rows, 1]));
    let softmax = (logits - normaliser).exp() * grad.clone();
    let update = burn::tensor::IndexingUpdateOp::Add;
    primitive(softmax.scatter(1, labels.reshape([rows, 1]), grad.neg(), update))
}
