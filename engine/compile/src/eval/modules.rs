//! Burn's module operations (convolutions, pooling, linear layers and embeddings).

use burn::tensor::{
    TensorMetadata,
    ops::{ConvOptions, FloatTensor},
};
use grove_backend::{
    Backend, Conv2dOptions,
    ops::{AnyTensor, Linear, Operation, Spec, Values, Wanted, max_pooling},
};

use super::{float, int};
use crate::{
    primitive::{Conv, Module},
    target::missing,
};

fn options<const N: usize>(conv: &Conv) -> ConvOptions<N> {
    let sizes = |sizes: &[usize]| -> [usize; N] { std::array::from_fn(|i| sizes[i]) };
    ConvOptions::new(sizes(&conv.stride), sizes(&conv.padding), sizes(&conv.dilation), conv.groups)
}

/// Reshapes sequences to images with one row.
fn with_row<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let [a, b, length] = x.shape().dims();
    B::float_reshape(x, [a, b, 1, length].into())
}

/// Returns a convolution of images as grove's own operation, on backends whose convolutions do not keep the requested
/// [precision](grove_backend::matmul_precision).
fn ours<B: Backend>(conv: &Conv) -> Option<Operation> {
    let pair = |sizes: &[usize]| <[usize; 2]>::try_from(sizes).ok();
    let (stride, padding, dilation) = (pair(&conv.stride)?, pair(&conv.padding)?, pair(&conv.dilation)?);
    B::FUSES.then(|| Conv2dOptions { stride, padding, dilation, groups: conv.groups }.into())
}

/// Runs grove's own [`Linear`], on the same backends.
fn linear<B: Backend>(x: FloatTensor<B>, weight: FloatTensor<B>, bias: Option<FloatTensor<B>>) -> FloatTensor<B> {
    let inputs = Values::optional_floats([Some(x), Some(weight), bias]);
    B::run(&Linear.into(), inputs, &[]).outputs.take_float(0)
}

fn linear_weight_gradient<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    let sizes = [&x, &grad].map(|x| x.shape()[x.shape().num_dims() - 1]);
    let wanted = Wanted::new(vec![None, Some(Spec { shape: sizes.into(), dtype: x.dtype() })]);
    let residuals = Values::optional_floats([Some(x), None]);
    B::run_vjp(&Linear.into(), residuals, Values::floats([grad]), &wanted).take_float(1)
}

/// Returns the gradient of a convolution with respect to the input at a position.
fn gradient<B: Backend>(
    conv: &Operation,
    inputs: [FloatTensor<B>; 2],
    grad: FloatTensor<B>,
    position: usize,
) -> FloatTensor<B> {
    let spec = Spec { shape: inputs[position].shape(), dtype: inputs[position].dtype() };
    let mut wanted = vec![None, None];
    wanted[position] = Some(spec);
    B::run_vjp(conv, Values::floats(inputs), Values::floats([grad]), &Wanted::new(wanted)).take_float(position)
}

/// Runs an operation. `outputs` is the number of its outputs.
pub(super) fn run<B: Backend>(module: &Module, inputs: Vec<AnyTensor<B>>, outputs: usize) -> Vec<Option<AnyTensor<B>>> {
    let count = inputs.len();
    let mut inputs = inputs.into_iter();
    let mut next = || inputs.next().unwrap_or_else(|| missing());
    let y = match module {
        Module::Embedding => B::embedding(float(next()), int(next())),
        Module::EmbeddingGrad => B::embedding_backward(float(next()), float(next()), int(next())),
        Module::Linear => {
            let (x, weight) = (float(next()), float(next()));
            let bias = (count == 3).then(|| float(next()));
            if B::FUSES { linear::<B>(x, weight, bias) } else { B::linear(x, weight, bias) }
        }
        Module::LinearInputGrad => {
            let (weight, grad) = (float(next()), float(next()));
            match B::FUSES {
                true => linear::<B>(grad, B::float_swap_dims(weight, 0, 1), None),
                false => B::linear_x_backward(weight, grad),
            }
        }
        Module::LinearWeightGrad => {
            let (x, grad) = (float(next()), float(next()));
            if B::FUSES { linear_weight_gradient::<B>(x, grad) } else { B::linear_weight_backward(x, grad) }
        }
        Module::LinearBiasGrad => B::linear_bias_backward(float(next())),
        Module::Conv(conv) => {
            let (x, weight) = (float(next()), float(next()));
            let bias = (count == 3).then(|| float(next()));
            match (ours::<B>(conv), conv.stride.len()) {
                (Some(conv), _) => {
                    let y = B::run(&conv, Values::floats([x, weight]), &[]).outputs.take_float(0);
                    match bias {
                        Some(bias) => {
                            let channels = bias.shape().num_elements();
                            B::float_add(y, B::float_reshape(bias, [1, channels, 1, 1].into()))
                        }
                        None => y,
                    }
                }
                (None, 1) => B::conv1d(x, weight, bias, options(conv)),
                (None, _) => B::conv2d(x, weight, bias, options(conv)),
            }
        }
        Module::ConvInputGrad(conv) => {
            let (x, weight, grad) = (float(next()), float(next()), float(next()));
            match (ours::<B>(conv), conv.stride.len()) {
                (Some(conv), _) => gradient::<B>(&conv, [x, weight], grad, 0),
                (None, 1) => B::conv1d_x_backward(x, weight, grad, options(conv)),
                (None, _) => B::conv2d_x_backward(x, weight, grad, options(conv)),
            }
        }
        Module::ConvWeightGrad(conv) => {
            let (x, weight, grad) = (float(next()), float(next()), float(next()));
            match (ours::<B>(conv), conv.stride.len()) {
                (Some(conv), _) => gradient::<B>(&conv, [x, weight], grad, 1),
                // Burn 0.21 misplaces the weight gradients of grouped conv1d if the stride leaves a remainder of the sequence.
                (None, 1) if conv.groups > 1 => {
                    let [a, b, length] = weight.shape().dims();
                    let [x, weight, grad] = [x, weight, grad].map(with_row::<B>);
                    let pair = |row: usize, sizes: &[usize]| [row, sizes[0]];
                    let (stride, padding) = (pair(1, &conv.stride), pair(0, &conv.padding));
                    let options = ConvOptions::new(stride, padding, pair(1, &conv.dilation), conv.groups);
                    B::float_reshape(B::conv2d_weight_backward(x, weight, grad, options), [a, b, length].into())
                }
                (None, 1) => B::conv1d_weight_backward(x, weight, grad, options(conv)),
                (None, _) => B::conv2d_weight_backward(x, weight, grad, options(conv)),
            }
        }
        Module::ConvBiasGrad(dimensions) => {
            let (x, bias, grad) = (float(next()), float(next()), float(next()));
            match dimensions {
                1 => B::conv1d_bias_backward(x, bias, grad),
                _ => B::conv2d_bias_backward(x, bias, grad),
            }
        }
        Module::AvgPool2d(p) => {
            B::avg_pool2d(float(next()), p.kernel_size, p.stride, p.padding, p.count_include_pad, p.ceil_mode)
        }
        Module::AvgPool2dGrad(p) => {
            let (x, grad) = (float(next()), float(next()));
            B::avg_pool2d_backward(x, grad, p.kernel_size, p.stride, p.padding, p.count_include_pad, p.ceil_mode)
        }
        Module::AdaptiveAvgPool2d(size) => B::adaptive_avg_pool2d(float(next()), *size),
        Module::AdaptiveAvgPool2dGrad => B::adaptive_avg_pool2d_backward(float(next()), float(next())),
        Module::MaxPool2d(p) if outputs == 1 => max_pooling::maxima::<B>(float(next()), |x| {
            B::max_pool2d(x, p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode)
        }),
        Module::MaxPool2d(p) => {
            let (y, indices) = max_pooling::maxima_with_indices::<B>(float(next()), |x| {
                let y = B::max_pool2d_with_indices(x, p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode);
                (y.output, y.indices)
            });
            return vec![Some(AnyTensor::Float(y)), Some(AnyTensor::Int(indices))];
        }
        Module::MaxPool2dGrad(p) => {
            let (x, indices, grad) = (float(next()), int(next()), float(next()));
            let (size, stride, padding, dilation) = (p.kernel_size, p.stride, p.padding, p.dilation);
            B::max_pool2d_with_indices_backward(x, size, stride, padding, dilation, p.ceil_mode, grad, indices).x_grad
        }
    };
    vec![Some(AnyTensor::Float(y))]
}
