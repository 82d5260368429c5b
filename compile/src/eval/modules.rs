//! Burn's module operations.

use burn::tensor::ops::ConvOptions;
use grove_backend::{Backend, ops::AnyTensor};

use super::{float, int, missing};
use crate::primitive::{Conv, Module};

fn options<const N: usize>(conv: &Conv) -> ConvOptions<N> {
    let sizes = |sizes: &[usize]| -> [usize; N] { std::array::from_fn(|i| sizes[i]) };
    ConvOptions::new(sizes(&conv.stride), sizes(&conv.padding), sizes(&conv.dilation), conv.groups)
}

/// Runs an operation with so many outputs.
pub(super) fn run<B: Backend>(module: &Module, inputs: Vec<AnyTensor<B>>, outputs: usize) -> Vec<Option<AnyTensor<B>>> {
    let count = inputs.len();
    let mut inputs = inputs.into_iter();
    let mut next = || inputs.next().unwrap_or_else(|| missing());
    let y = match module {
        Module::Embedding => B::embedding(float(next()), int(next())),
        Module::EmbeddingGrad => B::embedding_backward(float(next()), float(next()), int(next())),
        Module::Linear => {
            let (x, weight) = (float(next()), float(next()));
            B::linear(x, weight, (count == 3).then(|| float(next())))
        }
        Module::LinearInputGrad => B::linear_x_backward(float(next()), float(next())),
        Module::LinearWeightGrad => B::linear_weight_backward(float(next()), float(next())),
        Module::LinearBiasGrad => B::linear_bias_backward(float(next())),
        Module::Conv(conv) => {
            let (x, weight) = (float(next()), float(next()));
            let bias = (count == 3).then(|| float(next()));
            match conv.stride.len() {
                1 => B::conv1d(x, weight, bias, options(conv)),
                _ => B::conv2d(x, weight, bias, options(conv)),
            }
        }
        Module::ConvInputGrad(conv) => {
            let (x, weight, grad) = (float(next()), float(next()), float(next()));
            match conv.stride.len() {
                1 => B::conv1d_x_backward(x, weight, grad, options(conv)),
                _ => B::conv2d_x_backward(x, weight, grad, options(conv)),
            }
        }
        Module::ConvWeightGrad(conv) => {
            let (x, weight, grad) = (float(next()), float(next()), float(next()));
            match conv.stride.len() {
                1 => B::conv1d_weight_backward(x, weight, grad, options(conv)),
                _ => B::conv2d_weight_backward(x, weight, grad, options(conv)),
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
        Module::MaxPool2d(p) if outputs == 1 => {
            B::max_pool2d(float(next()), p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode)
        }
        Module::MaxPool2d(p) => {
            let x = float(next());
            let pooled = B::max_pool2d_with_indices(x, p.kernel_size, p.stride, p.padding, p.dilation, p.ceil_mode);
            return vec![Some(AnyTensor::Float(pooled.output)), Some(AnyTensor::Int(pooled.indices))];
        }
        Module::MaxPool2dGrad(p) => {
            let (x, indices, grad) = (float(next()), int(next()), float(next()));
            let (size, stride, padding, dilation) = (p.kernel_size, p.stride, p.padding, p.dilation);
            B::max_pool2d_with_indices_backward(x, size, stride, padding, dilation, p.ceil_mode, grad, indices).x_grad
        }
    };
    vec![Some(AnyTensor::Float(y))]
}
