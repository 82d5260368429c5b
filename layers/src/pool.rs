use burn::tensor::{Tensor, TensorPrimitive};
use grove_backend::{Backend, PoolOptions};

/// The largest number of each window.
///
/// # Shapes
/// - input `[b, c, h, w]`
/// - output `[b, c, h', w']`; see [`PoolOptions::output_size`]
pub fn max_pool<B: Backend>(x: Tensor<B, 4>, options: PoolOptions) -> Tensor<B, 4> {
    Tensor::from_primitive(TensorPrimitive::Float(B::max_pool(x.into_primitive().tensor(), options)))
}

/// The mean of each channel, `[b, c, h, w]` to `[b, c]`.
pub fn global_average_pool<B: Backend>(x: Tensor<B, 4>) -> Tensor<B, 2> {
    let [b, c, h, w] = x.dims();
    x.reshape([b, c, h * w]).mean_dim(2).reshape([b, c])
}
