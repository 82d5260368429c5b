use burn::tensor::{Tensor, TensorPrimitive};
use grove_backend::{Backend, PoolOptions, at_least_f32};

/// The largest number of each window.
///
/// # Shapes
/// - input `[b, c, h, w]`
/// - output `[b, c, h', w']`; see [`PoolOptions::output_size`]
pub fn max_pool<B: Backend>(x: Tensor<B, 4>, options: PoolOptions) -> Tensor<B, 4> {
    Tensor::from_primitive(TensorPrimitive::Float(B::max_pool(x.into_primitive().tensor(), options)))
}

/// The mean of each channel, `[b, c, h, w]` to `[b, c]`; of numbers of 16 bits taken in f32.
pub fn global_average_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [b, c, h, w] = x.dims();
    mean_of_axis(x.reshape([b, c, h * w]), 2).reshape([b, c])
}

/// The mean along an axis, which stays with size 1. Numbers of 16 bits are added up in f32, since a sum of thousands of them
/// may be more than f16 holds, and loses digits in bf16.
pub fn mean_of_axis<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
    let dtype = x.dtype();
    let mean = at_least_f32(x).mean_dim(axis);
    if mean.dtype() == dtype { mean } else { mean.cast(dtype) }
}
