use burn::tensor::{Tensor, TensorPrimitive};
use grove_backend::{Backend, PoolOptions, at_least_f32};

/// Max pooling: the largest value of each window.
///
/// # Shapes
/// - input `[b, c, h, w]`
/// - output `[b, c, h', w']`; see [`PoolOptions::output_size`]
pub fn max_pool<B: Backend>(x: Tensor<B, 4>, options: PoolOptions) -> Tensor<B, 4> {
    Tensor::from_primitive(TensorPrimitive::Float(B::max_pool(x.into_primitive().tensor(), options)))
}

/// Global average pooling: the mean of each channel, `[b, c, h, w]` to `[b, c]`. f16 and bf16 values are summed in
/// f32.
pub fn global_average_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [b, c, h, w] = x.dims();
    mean_of_axis(x.reshape([b, c, h * w]), 2).reshape([b, c])
}

/// Mean along an axis, which is kept with size 1. f16 and bf16 values are summed in f32, since a sum of thousands of
/// values may exceed the range of f16 and the precision of bf16.
pub fn mean_of_axis<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
    let dtype = x.dtype();
    let mean = at_least_f32(x).mean_dim(axis);
    if mean.dtype() == dtype { mean } else { mean.cast(dtype) }
}
