use burn::tensor::Tensor;
use grove_backend::{
    Backend,
    ops::{self, RowNorm},
};
use grove_tree::Array;

/// Normalises the last axis of a tensor of any rank, for [`LayerNorm`](crate::LayerNorm) and [`RmsNorm`](crate::RmsNorm).
#[track_caller]
pub(crate) fn row_norm<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: &Array<B, 1>,
    bias: Option<&Array<B, 1>>,
    options: RowNorm,
) -> Tensor<B, D> {
    let shape = x.dims();
    let size = shape[D - 1];
    let rows = x.reshape([shape.iter().product::<usize>() / size.max(1), size]);
    let (y, _) = ops::row_norm(rows, weight.val(), bias.map(Array::val), options);
    y.reshape(shape)
}
