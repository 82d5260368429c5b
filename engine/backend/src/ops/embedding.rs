//! Embedding lookup. The gradient is added to that of the table's other uses.

use burn::tensor::{Shape, TensorMetadata, ops::ModuleOps};

use super::{
    Backend, BatchAxis, Differentiation, Outcome, Residuals, Rules, Shapes, Values, Wanted,
    precision::{cast, widened},
};

/// Looks up the row of a table for each index.
///
/// # Shapes
/// - inputs: table `[rows, size]`; indices `[b, t]`
/// - output `[b, t, size]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Embedding;

impl Rules for Embedding {
    /// With tied weights, the output layer has already computed a gradient of the table. Adding rows to that gradient is
    /// cheap; a separate gradient, and the sum of both, would take three passes over all rows.
    const DIFFERENTIATION: Differentiation = Differentiation::Accumulating;
    const BATCH_AXIS: Option<BatchAxis> = BatchAxis::of(&[1]);

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let ([_, size], [b, t]) = (inputs.dims("embedding", 0), inputs.dims("embedding", 1));
        vec![Shape::from([b, t, size])]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([1])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        Outcome::new([<B as ModuleOps<B>>::embedding(inputs.take_float(0), inputs.take_int(1))])
    }

    /// In f32, because one index may occur thousands of times.
    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let (sum, grad) = sum_before::<B>(&mut grads, wanted);
        let indices = residuals.take_int(0);
        let (count, size) = (indices.shape().num_elements(), sum.shape()[1]);
        let indices = B::int_reshape(indices, Shape::from([count]));
        let rows = B::float_reshape(grad, Shape::from([count, size]));
        let dtype = sum.dtype();
        let sum = B::float_select_add(widened::<B>(sum), 0, indices, widened::<B>(rows));
        Values::floats([cast::<B>(sum, dtype)])
    }
}

/// Returns the gradient of the table so far (zeros if none) and the gradient of the output.
pub(super) fn sum_before<B: Backend>(
    grads: &mut Values<B>,
    wanted: &Wanted,
) -> (burn::tensor::ops::FloatTensor<B>, burn::tensor::ops::FloatTensor<B>) {
    let grad = grads.take_float(0);
    let zeros = || B::float_zeros(wanted.spec(0).shape.clone(), &B::float_device(&grad), grad.dtype().into());
    (grads.take_optional_float(1).unwrap_or_else(zeros), grad)
}
