//! Negative log-likelihood of labels.

use burn::tensor::{Int, Shape, Tensor};

use super::{Backend, BatchAxis, Outcome, Residuals, Rules, Shapes, Values, Wanted, primitive};

/// Negative log-likelihood of labels under the softmax of logits.
///
/// # Shapes
/// - inputs: logits `[rows, classes]`; labels `[rows]`, each a class index
/// - outputs `[rows]`: the losses; the log-sum-exp of each row, in f32 for 16-bit logits, which gets no gradient
///
/// An out-of-range label is an error on CPUs and gives a NaN loss on GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Nll;

impl Rules for Nll {
    const SAVES: bool = true;
    const IN_F32: bool = true;
    const BATCH_AXIS: Option<BatchAxis> = BatchAxis::of(&[0, 1]);

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let [rows, _] = inputs.dims("nll", 0);
        inputs.require(inputs.get(1) == Some(&[rows]), "nll", "labels [rows] for logits [rows, classes]");
        vec![Shape::from([rows]), Shape::from([rows])]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0, 1]).outputs([1])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let logits = inputs.take_tensor::<2>(0);
        let labels = Tensor::<B, 1, Int>::from_primitive(inputs.take_int(1));
        let rows = labels.dims()[0];
        // candle has no maximum of no elements.
        if rows == 0 {
            let none = Tensor::<B, 1>::zeros([0], (&logits.device(), logits.dtype()));
            return Outcome::new([primitive(none.clone()), primitive(none)]);
        }
        let largest = logits.clone().detach().max_dim(1);
        let shifted = logits - largest.clone(); // [rows, classes], at most 0
        // The log-sum is subtracted from the label's logit only, not from every class.
        let log = shifted.clone().exp().sum_dim(1).log(); // [rows, 1]
        let label = shifted.gather(1, labels.reshape([rows, 1]));
        let normaliser = (log.clone() + largest).reshape([rows]);
        Outcome::new([primitive((log - label).reshape([rows])), primitive(normaliser)])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let logits = residuals.take_tensor::<2>(0);
        let labels = Tensor::<B, 1, Int>::from_primitive(residuals.take_int(1));
        let rows = labels.dims()[0];
        if rows == 0 {
            return Values::floats([primitive(logits)]);
        }
        let (normaliser, grad) = (residuals.take_tensor::<1>(2), grads.take_tensor::<1>(0).reshape([rows, 1]));
        let softmax = (logits - normaliser.reshape([rows, 1])).exp() * grad.clone();
        let update = burn::tensor::IndexingUpdateOp::Add;
        Values::floats([primitive(softmax.scatter(1, labels.reshape([rows, 1]), grad.neg(), update))])
    }
}
