use burn::tensor::Tensor;

use crate::{Backend, ops};

/// The product of matrices, `[.., m, k]` and `[.., k, n]`, correct on every backend, which `Tensor::matmul` is not where
/// [`Backend::BROKEN_FUSED_GEMV`]. Two matrices are multiplied as [`ops::linear`] does it, others by [`ops::Matmul`].
pub fn matmul<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    if D == 2 && lhs.dtype() == rhs.dtype() {
        return ops::apply(ops::Linear, ops::Values::default().with(lhs).with(rhs)).take_tensor(0);
    }
    ops::matmul(lhs, rhs)
}
