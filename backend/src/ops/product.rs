//! Products of matrices with a backward pass of products that are right, and as precise, on every backend.

use burn::tensor::{Shape, TensorMetadata, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, custom::recorded};

/// The factors, of which each is kept where the other needs a gradient, and their shapes.
type Kept<B> = ([Option<FloatTensor<B>>; 2], [Shape; 2]);

/// Gradients of [`Backend::matmul`] with respect to the factors that need one.
fn backward<B: Backend>(
    ([lhs, rhs], [lhs_shape, rhs_shape]): Kept<B>,
    grad: FloatTensor<B>,
    needs: [bool; 2],
) -> [Option<FloatTensor<B>>; 2] {
    let transposed = |x: FloatTensor<B>| {
        let d = x.shape().num_dims();
        B::float_swap_dims(x, d - 2, d - 1)
    };
    let rhs = rhs.filter(|_| needs[0]);
    let lhs = lhs.filter(|_| needs[1]);
    [
        rhs.map(|rhs| summed_to::<B>(B::matmul(grad.clone(), transposed(rhs)), &lhs_shape)),
        lhs.map(|lhs| summed_to::<B>(B::matmul(transposed(lhs), grad), &rhs_shape)),
    ]
}

/// A gradient added up over the axes in which its factor has one matrix for all of a batch.
fn summed_to<B: Backend>(grad: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    (0..shape.num_dims()).fold(grad, |grad, axis| {
        if shape[axis] == 1 && grad.shape()[axis] > 1 { B::float_sum_dim(grad, axis) } else { grad }
    })
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    lhs: FloatTensor<Autodiff<B, C>>,
    rhs: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let tracked = [lhs.is_tracked(), rhs.is_tracked()];
    recorded::<B, C, Kept<B>, 2>([lhs, rhs], backward::<B>, |[lhs, rhs], keep| {
        let kept = keep.then(|| {
            let factors = [tracked[1].then(|| lhs.clone()), tracked[0].then(|| rhs.clone())];
            (factors, [lhs.shape(), rhs.shape()])
        });
        (B::matmul(lhs, rhs), kept)
    })
}
