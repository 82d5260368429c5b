use burn::tensor::Tensor;
use grove_backend::{Backend, Pool2dOptions, at_least_f32, ops, to_dtype};

/// Applies max pooling: each output is the maximum of a window.
///
/// # Shapes
/// - input `[b, c, h, w]`
/// - output `[b, c, h', w']`; see [`Pool2dOptions::output_size`]
#[track_caller]
pub fn max_pool<B: Backend>(x: Tensor<B, 4>, options: Pool2dOptions) -> Tensor<B, 4> {
    ops::max_pool2d(x, options)
}

/// Applies global average pooling: the mean of each channel, `[b, c, h, w]` to `[b, c]`. f16 and bf16 values are summed in
/// f32.
#[track_caller]
pub fn global_average_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [b, c, h, w] = x.dims();
    mean_of_axis(x.reshape([b, c, h * w]), 2).reshape([b, c])
}

/// Computes the mean along an axis and keeps the axis with size 1. f16 and bf16 values are summed in f32, because a sum of
/// thousands of values may exceed the range of f16 and the precision of bf16.
#[track_caller]
pub fn mean_of_axis<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
    let dtype = x.dtype();
    to_dtype(at_least_f32(x).mean_dim(axis), dtype)
}
