use burn::tensor::{
    Shape, Tensor,
    activation::{relu, tanh},
};

use super::{
    Outcome, Residuals, RnnActivation, Rules, Shapes, Steps, Values, Wanted, primitive, project, project_backward,
    shape_of,
    steps::{in_order, replace},
};
use crate::{Backend, matmul};

/// A plain recurrent layer, `h' = f(W_ih x + W_hh h + b)` (Elman, 1990), in one direction over a packed batch. Sizes as in
/// [`Lstm`](super::Lstm).
///
/// # Shapes
/// - inputs: `x` `[rows, i]`; `w_ih` `[n, i]`; `w_hh` `[n, n]`; the sum of both biases `[n]`; `h` `[b, n]`
/// - output `[rows + b, n]`: the hidden states of each row, then those after each sequence's last step
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rnn {
    /// Activation function `f`.
    pub activation: RnnActivation,
    /// Rows of each step of the packed batch.
    pub steps: Steps,
}

impl Rules for Rnn {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        vec![shape_of("rnn", inputs, &self.steps, [1, 1, 1]).into()]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs(0..5).outputs([0])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let mut h = inputs.take_tensor::<2>(4); // [b, n]
        let projected = project(inputs.take_tensor(0), inputs.take_tensor(1), inputs.take_tensor(3)); // [rows, n]
        let w = inputs.take_tensor::<2>(2).transpose();
        let mut outputs = vec![];
        for (step, rows) in self.steps.walk() {
            let active = rows.len();
            let sum =
                projected.clone().narrow(0, rows.start, active) + matmul(h.clone().narrow(0, 0, active), w.clone());
            let output = match self.activation {
                RnnActivation::Tanh => tanh(sum),
                RnnActivation::Relu => relu(sum),
            };
            h = replace(h, output.clone());
            outputs.push((step, output));
        }
        Outcome::new([primitive(Tensor::cat(vec![in_order(outputs), h], 0))])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let [x, w_ih, w_hh] = [0, 1, 2].map(|i| residuals.take_tensor::<2>(i));
        let (h0, grad, needs) = (residuals.take_tensor::<2>(4), grads.take_tensor::<2>(0), wanted.needs::<5>());
        let (n, rows, b) = (h0.dims()[1], self.steps.rows(), self.steps.batch());
        let output = residuals.take_tensor::<2>(5).narrow(0, 0, rows);
        let slope = match self.activation {
            RnnActivation::Tanh => (output.clone() * output.clone()).neg().add_scalar(1.0),
            RnnActivation::Relu => output.clone().greater_elem(0.0).float().cast(output.dtype()),
        };
        let mut dh = grad.clone().narrow(0, rows, b);
        let mut grads = vec![];
        for (step, rows) in self.steps.walk().into_iter().rev() {
            let at = |x: &Tensor<B, 2>| x.clone().narrow(0, rows.start, rows.len());
            let d_sum = (dh.clone().narrow(0, 0, rows.len()) + at(&grad)) * at(&slope);
            dh = replace(dh, matmul(d_sum.clone(), w_hh.clone()));
            grads.push((step, d_sum));
        }
        let d_sums = in_order(grads); // [rows, n]
        let dw_hh = needs[2].then(|| primitive(matmul(d_sums.clone().transpose(), self.steps.before(&output, &h0))));
        let [dx, dw_ih, db] = project_backward(x, w_ih, d_sums, [needs[0], needs[1], needs[3]]);
        let db = db.map(|db| primitive(db.reshape([n])));
        let dh = needs[4].then(|| primitive(dh));
        Values::optional_floats([dx.map(primitive), dw_ih.map(primitive), dw_hh, db, dh])
    }
}
