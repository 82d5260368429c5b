use burn::tensor::{Slice, Tensor, TensorMetadata, TensorPrimitive, ops::FloatTensor};

use crate::Backend;

/// The product of matrices, `[.., m, k]` and `[.., k, n]`, right on every backend, which `Tensor::matmul` is not where
/// [`Backend::FUSES_VECTORS_WRONGLY`]. Two matrices are multiplied as [`Backend::affine`] does it, others as
/// [`Backend::matmul`].
pub fn matmul<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    if D == 2 && lhs.dtype() == rhs.dtype() {
        let product = B::affine(lhs.into_primitive().tensor(), rhs.into_primitive().tensor(), None);
        return Tensor::from_primitive(TensorPrimitive::Float(product));
    }
    composed(lhs, rhs)
}

/// The product by [`Backend::matmul`].
pub(crate) fn composed<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    let product = B::matmul(lhs.into_primitive().tensor(), rhs.into_primitive().tensor());
    Tensor::from_primitive(TensorPrimitive::Float(product))
}

/// The product by Burn's own. Where [`Backend::FUSES_VECTORS_WRONGLY`], a product with one row or one column is computed with
/// two of them, of which one is dropped. So are the products of its backward pass.
pub(crate) fn by_pairs<B: Backend>(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
    if !B::FUSES_VECTORS_WRONGLY {
        return B::float_matmul(lhs, rhs);
    }
    let d = lhs.shape().num_dims();
    let (m, n) = (lhs.shape()[d - 2], rhs.shape()[d - 1]);
    let twice = |x: FloatTensor<B>, axis: usize| B::float_cat(vec![x.clone(), x], axis);
    let lhs = if m == 1 { twice(lhs, d - 2) } else { lhs };
    let rhs = if n == 1 { twice(rhs, d - 1) } else { rhs };
    let y = B::float_matmul(lhs, rhs);
    if m > 1 && n > 1 {
        return y;
    }
    let mut slices = vec![Slice::full(); d];
    slices[d - 2] = Slice::from(0..m);
    slices[d - 1] = Slice::from(0..n);
    B::float_slice(y, &slices)
}
