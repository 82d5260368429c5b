use burn::tensor::Tensor;

use crate::{Backend, ops};

/// Multiplies matrices, `[.., m, k]` and `[.., k, n]`. Correct on every backend, unlike `Tensor::matmul` on backends with
/// [`Backend::BROKEN_FUSED_GEMV`]. Two-dimensional products run as [`ops::linear`], others as [`ops::Matmul`].
pub fn matmul<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    if D == 2 && lhs.dtype() == rhs.dtype() {
        return ops::apply(ops::Linear, ops::Values::default().with(lhs).with(rhs)).take_tensor(0);
    }
    ops::matmul(lhs, rhs)
}
