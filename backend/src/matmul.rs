use burn::tensor::{Tensor, TensorPrimitive};

use crate::Backend;

/// The product of matrices, `[.., m, k]` and `[.., k, n]`, right on every backend.
///
/// `Tensor::matmul` is not where [`Backend::FUSES_VECTORS_WRONGLY`]: a product with one row or one column is computed
/// there with two of them, of which one is dropped. So are the products of its backward pass. Elsewhere two matrices are
/// multiplied as [`Backend::affine`] does it.
pub fn matmul<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    if D == 2 && !B::FUSES_VECTORS_WRONGLY && lhs.dtype() == rhs.dtype() {
        let product = B::affine(lhs.into_primitive().tensor(), rhs.into_primitive().tensor(), None);
        return Tensor::from_primitive(TensorPrimitive::Float(product));
    }
    composed(lhs, rhs)
}

/// The product by Burn's operations.
pub(crate) fn composed<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    if !B::FUSES_VECTORS_WRONGLY {
        return lhs.matmul(rhs);
    }
    let twice = |x: Tensor<B, D>, axis: usize| Tensor::cat(vec![x.clone(), x], axis);
    let (m, n) = (lhs.dims()[D - 2], rhs.dims()[D - 1]);
    let lhs = if m == 1 { twice(lhs, D - 2) } else { lhs };
    let rhs = if n == 1 { twice(rhs, D - 1) } else { rhs };
    lhs.matmul(rhs).narrow(D - 2, 0, m).narrow(D - 1, 0, n)
}
