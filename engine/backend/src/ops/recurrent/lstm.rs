use burn::tensor::{
    Shape, Tensor,
    activation::{sigmoid, tanh},
};

use super::{
    Outcome, Residuals, Rules, Shapes, Steps, Values, Wanted, gate, primitive, project, project_backward, shape_of,
    steps::{in_order, replace},
};
use crate::{Backend, matmul};

/// An LSTM layer (Hochreiter and Schmidhuber, 1997) in one direction over a packed batch, with gates in the order input,
/// forget, cell, output.
///
/// # Shapes
/// With `b` sequences of `rows` steps in total, `i` inputs and `n` hidden units:
/// - inputs: `x` `[rows, i]`; `w_ih` `[4 n, i]`; `w_hh` `[4 n, n]`; the sum of both biases `[4 n]`; the initial states `h`
///   and `c`, each `[b, n]`
/// - output `[rows + 2 b, n]`: the hidden states of each row, then `h` and then `c` after each sequence's last step
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Lstm {
    /// Rows of each step of the packed batch.
    pub steps: Steps,
}

impl Rules for Lstm {
    const SAVES: bool = true;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        vec![shape_of("lstm", inputs, &self.steps, [4, 4, 2]).into()]
    }

    /// Saves the gates `[rows, 4 n]` and the cell states `[rows, n]`.
    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs(0..6).outputs([0]).saved(2)
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
        let keep = needs.contains(&true);
        let [mut h, mut c] = [4, 5].map(|i| inputs.take_tensor::<2>(i)); // [b, n]
        let n = h.dims()[1];
        let projected = project(inputs.take_tensor(0), inputs.take_tensor(1), inputs.take_tensor(3)); // [rows, 4 n]
        let w = inputs.take_tensor::<2>(2).transpose();
        let (mut outputs, mut all_gates, mut cells) = (vec![], vec![], vec![]);
        for (step, rows) in self.steps.walk() {
            let active = rows.len();
            let from_state = matmul(h.clone().narrow(0, 0, active), w.clone());
            let gates = projected.clone().narrow(0, rows.start, active) + from_state;
            let (i, f) = (sigmoid(gate(&gates, 0, n)), sigmoid(gate(&gates, 1, n)));
            let (g, o) = (tanh(gate(&gates, 2, n)), sigmoid(gate(&gates, 3, n)));
            let cell = f.clone() * c.clone().narrow(0, 0, active) + i.clone() * g.clone();
            let output = o.clone() * tanh(cell.clone());
            if keep {
                all_gates.push((step, Tensor::cat(vec![i, f, g, o], 1)));
                cells.push((step, cell.clone()));
            }
            (h, c) = (replace(h, output.clone()), replace(c, cell));
            outputs.push((step, output));
        }
        let saved = keep.then(|| [in_order(all_gates), in_order(cells)].map(primitive));
        let output = Tensor::cat(vec![in_order(outputs), h, c], 0);
        Outcome::new([primitive(output)]).saving(saved.into_iter().flatten())
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let [x, w_ih, w_hh] = [0, 1, 2].map(|i| residuals.take_tensor::<2>(i));
        let [h0, c0, output, gates, cells] = [4, 5, 6, 7, 8].map(|i| residuals.take_tensor::<2>(i));
        let (grad, needs) = (grads.take_tensor::<2>(0), wanted.needs::<6>());
        let (n, rows, b) = (h0.dims()[1], self.steps.rows(), self.steps.batch());
        let mut dh = grad.clone().narrow(0, rows, b);
        let mut dc = grad.clone().narrow(0, rows + b, b);
        let c_before = self.steps.before(&cells, &c0);
        // Factors that do not depend on the next step are computed for all steps at once.
        let [i, f, g, o] = [0, 1, 2, 3].map(|k| gate(&gates, k, n));
        let squashed = tanh(cells);
        let one_minus = |x: &Tensor<B, 2>| x.clone().neg().add_scalar(1.0);
        let to_cell = o.clone() * one_minus(&(squashed.clone() * squashed.clone()));
        let slope = |y: &Tensor<B, 2>| y.clone() * one_minus(y);
        let to_i = g.clone() * slope(&i);
        let to_f = c_before * slope(&f);
        let to_g = i * one_minus(&(g.clone() * g));
        let to_o = squashed * slope(&o);
        let mut grad_gates = vec![];
        for (step, rows) in self.steps.walk().into_iter().rev() {
            let at = |x: &Tensor<B, 2>| x.clone().narrow(0, rows.start, rows.len());
            let active = |x: &Tensor<B, 2>| x.clone().narrow(0, 0, rows.len());
            let d_output = active(&dh) + at(&grad);
            let d_cell = active(&dc) + d_output.clone() * at(&to_cell);
            let through_cell = [&to_i, &to_f, &to_g].map(|to| d_cell.clone() * at(to));
            let d_gates = Tensor::cat(through_cell.into_iter().chain([d_output * at(&to_o)]).collect(), 1); // [active, 4 n]
            dh = replace(dh, matmul(d_gates.clone(), w_hh.clone()));
            dc = replace(dc, d_cell * at(&f));
            grad_gates.push((step, d_gates));
        }
        let grad_gates = in_order(grad_gates); // [rows, 4 n]
        let h_before = || self.steps.before(&output.narrow(0, 0, rows), &h0);
        let dw_hh = needs[2].then(|| matmul(grad_gates.clone().transpose(), h_before()));
        let [dx, dw_ih, db] = project_backward(x, w_ih, grad_gates, [needs[0], needs[1], needs[3]]);
        let db = db.map(|db| primitive(db.reshape([4 * n])));
        let (dh, dc) = (needs[4].then(|| primitive(dh)), needs[5].then(|| primitive(dc)));
        Values::optional_floats([dx.map(primitive), dw_ih.map(primitive), dw_hh.map(primitive), db, dh, dc])
    }
}
