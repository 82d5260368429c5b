//! Matrix products whose backward pass is correct, and equally precise, on every backend.

use burn::tensor::{Shape, Slice, TensorMetadata, ops::FloatTensor};

use super::{Backend, Outcome, Residuals, Rules, Shapes, Values, Wanted, operation::needed};

/// Product of matrices of one dtype, correct on every backend; [`matmul`](crate::matmul()) runs it.
///
/// # Shapes
/// - inputs `[.., m, k]` and `[.., k, n]`; the batch axes are equal or 1
/// - output `[.., m, n]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Matmul;

impl Rules for Matmul {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let (a, b) = (inputs.get(0).unwrap_or_default(), inputs.get(1).unwrap_or_default());
        let d = a.len();
        let fits = d >= 2 && b.len() == d && a[d - 1] == b[d - 2];
        let batches = || a.iter().zip(b).take(d - 2).all(|(a, b)| a == b || *a == 1 || *b == 1);
        inputs.require(fits && batches(), "matmul", "[.., m, k] by [.., k, n] with broadcastable batch axes");
        let mut shape: Vec<_> = a.iter().zip(b).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
        (shape[d - 2], shape[d - 1]) = (a[d - 2], b[d - 1]);
        vec![shape.into()]
    }

    fn residuals(&self, needs: &[bool]) -> Residuals {
        Residuals::default().input_if(needed(needs, 1), 0).input_if(needed(needs, 0), 1)
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let [lhs, rhs] = inputs.take_floats();
        Outcome::new([by_pairs::<B>(lhs, rhs)])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let grad = grads.take_float(0);
        let product = |lhs, rhs| B::run(&Matmul.into(), Values::floats([lhs, rhs]), &[]).outputs.take_float(0);
        let transpose = |x: FloatTensor<B>| {
            let d = x.shape().num_dims();
            B::float_swap_dims(x, d - 2, d - 1)
        };
        let (lhs, rhs) = (residuals.take_optional_float(0), residuals.take_optional_float(1));
        Values::optional_floats([
            rhs.map(|rhs| sum_to::<B>(product(grad.clone(), transpose(rhs)), &wanted.spec(0).shape)),
            lhs.map(|lhs| sum_to::<B>(product(transpose(lhs), grad), &wanted.spec(1).shape)),
        ])
    }
}

/// Sums a gradient over the batch axes along which its input was broadcast.
fn sum_to<B: Backend>(grad: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    (0..shape.num_dims()).fold(grad, |grad, axis| {
        if shape[axis] == 1 && grad.shape()[axis] > 1 { B::float_sum_dim(grad, axis) } else { grad }
    })
}

/// Computes the product with all batch axes joined, if there are more than two.
#[cfg(feature = "candle")]
pub(super) fn with_one_batch_axis<B: Backend>(inputs: Values<B>) -> Outcome<B> {
    let [lhs, rhs] = inputs.take_floats();
    let (a, b) = (lhs.shape(), rhs.shape());
    let batch = a.num_dims() - 2;
    if batch <= 2 {
        return Outcome::new([by_pairs::<B>(lhs, rhs)]);
    }
    let sizes: Vec<usize> = a.iter().zip(b.iter()).take(batch).map(|(&a, &b)| if a == 1 { b } else { a }).collect();
    let with_batch = |rows: usize, columns: usize| Shape::from([&sizes[..], &[rows, columns]].concat());
    let joined = |x: FloatTensor<B>| {
        let (rows, columns) = (x.shape()[batch], x.shape()[batch + 1]);
        let x = B::float_expand(x, with_batch(rows, columns));
        B::float_reshape(x, Shape::from([sizes.iter().product(), rows, columns]))
    };
    let y = by_pairs::<B>(joined(lhs), joined(rhs));
    Outcome::new([B::float_reshape(y, with_batch(a[batch], b[batch + 1]))])
}

/// Computes the product with Burn's operation. With [`Backend::BROKEN_FUSED_GEMV`], a single row or column is duplicated,
/// and the duplicate is dropped from the result.
fn by_pairs<B: Backend>(lhs: FloatTensor<B>, rhs: FloatTensor<B>) -> FloatTensor<B> {
    if !B::BROKEN_FUSED_GEMV {
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
