use burn::tensor::{Tensor, TensorPrimitive};
use grove_backend::{Backend, RowNormOptions};
use grove_tree::Array;

/// Normalisation of the last axis for tensors of any rank, shared by [`LayerNorm`](crate::LayerNorm) and
/// [`RmsNorm`](crate::RmsNorm).
pub(crate) fn row_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: &Array<B, 1>,
    bias: Option<&Array<B, 1>>,
    options: RowNormOptions,
) -> Tensor<B, D> {
    let shape = x.dims();
    let size = shape[D - 1];
    let rows = x.reshape([shape.iter().product::<usize>() / size.max(1), size]);
    let primitive = |leaf: &Array<B, 1>| leaf.val().into_primitive().tensor();
    let (y, _) = B::row_norm(rows.into_primitive().tensor(), primitive(weight), bias.map(primitive), options);
    Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(y)).reshape(shape)
}
