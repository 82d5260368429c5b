//! Sum of squares of several tensors.

use burn::tensor::{Shape, ops::FloatTensor};

use super::{Backend, Differentiation, Outcome, Rules, Shapes, Values, at_least_f32, flat, primitive};

/// Sum of the squares of all elements of several tensors of one dtype; 16-bit values are summed in f32.
///
/// # Shapes
/// - inputs: at least one tensor, any shapes
/// - output `[1]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SumOfSquares;

impl Rules for SumOfSquares {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        inputs.require(inputs.len() > 0, "sum_of_squares", "at least one tensor");
        vec![Shape::from([1])]
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        sum(inputs, sum_of_one::<B>)
    }
}

/// Sums the results of a function over all tensors.
pub(super) fn sum<B: Backend>(inputs: Values<B>, f: impl Fn(FloatTensor<B>) -> FloatTensor<B>) -> Outcome<B> {
    Outcome::new(inputs.into_floats().into_iter().map(f).reduce(B::float_add))
}

pub(super) fn sum_of_one<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let x = at_least_f32(flat::<B>(x));
    primitive((x.clone() * x).sum())
}
