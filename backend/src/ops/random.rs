//! Random bits and dropout, drawn from a key on the device that computes with them.

use burn::tensor::{
    Int, Shape, Tensor, TensorData, TensorMetadata, TensorPrimitive,
    ops::{FloatTensor, IntTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use grove_kernels::{self as kernels, Dropout};

use super::{Backend, custom::recorded, precision::cast, primitive};

/// 32 random bits for each element of a tensor, u32: those of `jax.random.bits(key)`. `key` has the two words of a random
/// key, the high one first; the bits of an element depend on it and on the element's index in row-major order.
///
/// # Shapes
/// - output: `shape`
pub fn random_bits<B: Backend, const D: usize>(
    key: [u32; 2],
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(B::random_bits(key, shape.into(), device))
}

/// [`Backend::dropout`] of a tensor of any shape.
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, dropout: Dropout) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(B::dropout(x.into_primitive().tensor(), dropout)))
}

pub(super) fn bits_from_host<B: Backend>(key: [u32; 2], shape: Shape, device: &B::Device) -> IntTensor<B> {
    let bits = kernels::random_bits(key, shape.num_elements());
    B::int_from_data(TensorData::new(bits, shape), device)
}

/// A product with factors from the host.
pub(super) fn dropout_by_product<B: Backend>(x: FloatTensor<B>, dropout: Dropout) -> FloatTensor<B> {
    let shape = x.shape();
    let count = shape.num_elements();
    let factors = TensorData::new(dropout.factors(count), [count]);
    let factors = cast::<B>(primitive(Tensor::<B, 1>::from_data(factors, &B::float_device(&x))), x.dtype());
    B::float_mul(x, B::float_reshape(factors, shape))
}

/// The gradient is dropped as the input was, by bits that are drawn again.
pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    dropout: Dropout,
) -> FloatTensor<Autodiff<B, C>> {
    let backward = |dropout: Dropout, grad, _| [Some(B::dropout(grad, dropout))];
    recorded::<B, C, _, 1>([x], backward, |[x], _| (B::dropout(x, dropout), Some(dropout)))
}
