//! 16-bit dtypes. Values are stored and multiplied in 16 bits; sums, means, squares and exponentials are computed in f32
//! and rounded once, as in PyTorch's kernels. The maximum of f16 is 65,504, less than the square of 256. bf16 has an 8-bit
//! significand, so a sum of ones stays at 256.

use burn::tensor::{DType, Tensor, TensorMetadata, ops::FloatTensor};

use super::{Backend, float, primitive};

/// Converts f16 and bf16 tensors to f32. Returns other dtypes unchanged.
pub fn at_least_f32<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    float(widened::<B>(primitive(x)))
}

/// Casts a tensor to a floating-point dtype. Faster than Burn's `cast` between f32 and 16 bits on a CPU.
pub fn to_dtype<B: Backend, const D: usize>(x: Tensor<B, D>, dtype: DType) -> Tensor<B, D> {
    float(cast::<B>(primitive(x), dtype))
}

/// Returns true for 16-bit dtypes.
pub(super) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// Casts a floating-point tensor to a dtype.
pub fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::cast_float(x, dtype) }
}

/// Converts f16 and bf16 tensors to f32. Returns other dtypes unchanged.
pub(super) fn widened<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    if is_half(x.dtype()) { cast::<B>(x, DType::F32) } else { x }
}
