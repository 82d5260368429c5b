//! Numbers of 16 bits. They are kept and multiplied as such; sums, means, squares and exponentials of them are taken in f32
//! and rounded once, as PyTorch's kernels do. f16 ends at 65,504, which the square of 256 exceeds; bf16 has 8 bits of
//! mantissa, and a sum of ones stays at 256.

use burn::tensor::{DType, Tensor, TensorMetadata, ops::FloatTensor};

use super::Backend;

/// A tensor of f16 or bf16 in f32; of other types as it is.
pub fn at_least_f32<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    if is_half(x.dtype()) { x.cast(DType::F32) } else { x }
}

/// True for types of 16 bits.
pub(super) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// A tensor in a type of floating-point numbers.
pub fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::float_cast(x, dtype.into()) }
}

/// A tensor of f16 or bf16 in f32; of other types as it is.
pub(super) fn widened<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    if is_half(x.dtype()) { cast::<B>(x, DType::F32) } else { x }
}
