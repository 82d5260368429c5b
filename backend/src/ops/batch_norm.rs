//! Batch normalisation, written with Burn's operations: the defaults of [`Backend`].

use burn::tensor::{Tensor, TensorMetadata, activation, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{
    Backend,
    autodiff::untracked,
    custom::recorded,
    float,
    precision::{cast, is_half, widened},
    primitive,
};

/// A batch, normalised.
#[derive(Clone, Debug)]
pub struct BatchNormed<B: Backend> {
    /// `[b, c, h, w]`.
    pub output: FloatTensor<B>,
    /// Of each channel, `[c]`, in f32 where the batch has 16 bits. No gradient flows there.
    pub mean: FloatTensor<B>,
    /// Of each channel, the mean squared distance from the mean, `[c]`, in f32 where the batch has 16 bits. No gradient
    /// flows there.
    pub variance: FloatTensor<B>,
}

/// What the backward pass of batch normalisation needs.
#[derive(Clone, Debug)]
pub struct BatchNormKept<B: Backend> {
    /// What was normalised.
    pub x: FloatTensor<B>,
    /// The scale.
    pub weight: FloatTensor<B>,
    /// What came out.
    pub normed: BatchNormed<B>,
    /// What was added to the variance.
    pub eps: f64,
    /// Whether negative numbers became 0.
    pub relu: bool,
}

/// A number of each channel, to be broadcast.
fn each<B: Backend>(x: FloatTensor<B>) -> Tensor<B, 4> {
    let x = float::<B, 1>(x);
    let channels = x.dims()[0];
    x.reshape([1, channels, 1, 1])
}

/// The sum of each channel, `[c]`.
fn channel_sums<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 1> {
    let [b, c, h, w] = x.dims();
    x.reshape([b, c, h * w]).sum_dim(2).sum_dim(0).reshape([c])
}

pub(super) fn forward<B: Backend>(
    [x, weight, bias]: [FloatTensor<B>; 3],
    residual: Option<FloatTensor<B>>,
    relu: bool,
    eps: f64,
) -> BatchNormed<B> {
    let dtype = x.dtype();
    if is_half(dtype) {
        let inputs = [x, weight, bias].map(widened::<B>);
        let normed = B::batch_norm(inputs, residual.map(widened::<B>), relu, eps);
        return BatchNormed { output: cast::<B>(normed.output, dtype), ..normed };
    }
    let [weight, bias] = [weight, bias].map(|x| cast::<B>(x, dtype));
    let x = float::<B, 4>(x);
    let [b, c, h, w] = x.dims();
    let count = (b * h * w) as f64;
    let mean = channel_sums(x.clone()) / count;
    let centred = x - mean.clone().reshape([1, c, 1, 1]);
    let variance = channel_sums(centred.clone().powi_scalar(2)) / count;
    let scale = float::<B, 1>(weight) / variance.clone().add_scalar(eps).sqrt();
    let y = centred * scale.reshape([1, c, 1, 1]) + each(bias);
    let y = match residual {
        Some(residual) => y + float(cast::<B>(residual, dtype)),
        None => y,
    };
    let y = if relu { activation::relu(y) } else { y };
    BatchNormed { output: primitive(y), mean: primitive(mean), variance: primitive(variance) }
}

pub(super) fn backward<B: Backend>(kept: BatchNormKept<B>, grad: FloatTensor<B>) -> [FloatTensor<B>; 4] {
    let BatchNormKept { x, weight, normed, eps, relu } = kept;
    let dtype = x.dtype();
    if is_half(dtype) {
        let normed = BatchNormed { output: widened::<B>(normed.output), ..normed };
        let kept = BatchNormKept { x: widened::<B>(x), weight: widened::<B>(weight), normed, eps, relu };
        let [dx, dw, db, grad] = B::batch_norm_backward(kept, widened::<B>(grad));
        return [cast::<B>(dx, dtype), dw, db, cast::<B>(grad, dtype)];
    }
    let (weight, grad) = (cast::<B>(weight, dtype), cast::<B>(grad, dtype));
    let (x, grad) = (float::<B, 4>(x), float::<B, 4>(grad));
    let [b, c, h, w] = x.dims();
    let count = (b * h * w) as f64;
    let grad = if relu { grad.mask_fill(float::<B, 4>(normed.output).lower_equal_elem(0), 0) } else { grad };
    let inverse_std = each::<B>(normed.variance).add_scalar(eps).sqrt().recip();
    let normal = (x - each(normed.mean)) * inverse_std.clone();
    let db = channel_sums(grad.clone());
    let dw = channel_sums(grad.clone() * normal.clone());
    let mean = |sums: &Tensor<B, 1>| sums.clone().reshape([1, c, 1, 1]) / count;
    let dx = (grad.clone() - mean(&db) - normal * mean(&dw)) * (inverse_std * each(weight));
    [primitive(dx), primitive(dw), primitive(db), primitive(grad)]
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    [x, weight, bias]: [FloatTensor<Autodiff<B, C>>; 3],
    residual: Option<FloatTensor<Autodiff<B, C>>>,
    relu: bool,
    eps: f64,
) -> BatchNormed<Autodiff<B, C>> {
    match residual {
        Some(residual) => with_inputs::<B, C, 4>([x, weight, bias, residual], relu, eps),
        None => with_inputs::<B, C, 3>([x, weight, bias], relu, eps),
    }
}

/// Of the input, the scale and the shift, and of what is added, if anything is.
fn with_inputs<B: Backend, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    relu: bool,
    eps: f64,
) -> BatchNormed<Autodiff<B, C>> {
    let backward = |kept: BatchNormKept<B>, grad, _needs: [bool; N]| {
        let mut grads = B::batch_norm_backward(kept, grad).map(Some);
        std::array::from_fn(|i| grads[i].take())
    };
    let mut statistics = None;
    let output = recorded::<B, C, _, N>(inputs, backward, |inputs, keep| {
        let mut inputs = inputs.into_iter();
        let [x, weight, bias] = [0, 1, 2].map(|_| inputs.next().expect("an input, a scale and a shift"));
        let kept = keep.then(|| (x.clone(), weight.clone()));
        let normed = B::batch_norm([x, weight, bias], inputs.next(), relu, eps);
        statistics = Some([normed.mean.clone(), normed.variance.clone()]);
        let output = normed.output.clone();
        (output, kept.map(|(x, weight)| BatchNormKept { x, weight, normed, eps, relu }))
    });
    let [mean, variance] = statistics.map_or([None, None], |statistics| statistics.map(Some)).map(untracked::<B, C>);
    BatchNormed { output, mean, variance }
}
