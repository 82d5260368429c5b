use burn::tensor::{
    Shape, Tensor,
    activation::{sigmoid, tanh},
};

use super::{
    GruReset, Outcome, Residuals, Rules, Shapes, Steps, Values, Wanted, gate, primitive, project, project_backward,
    shape_of,
    steps::{in_order, replace},
    sum_rows,
};
use crate::{Backend, matmul};

/// A GRU layer (Cho et al., 2014) in one direction over a packed batch, with gates in the order reset, update, new. Sizes
/// as in [`Lstm`](super::Lstm).
///
/// # Shapes
/// - inputs: `x` `[rows, i]`; `w_ih` `[3 n, i]`; `w_hh` `[3 n, n]`; bias `[4 n]`: the sums of both biases of the reset and
///   update gates, then the input bias and the state bias of the new gate; `h` `[b, n]`
/// - output `[rows + b, n]`: the hidden states of each row, then those after each sequence's last step
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gru {
    /// Position of the reset gate.
    pub reset: GruReset,
    /// Rows of each step of the packed batch.
    pub steps: Steps,
}

impl Rules for Gru {
    const SAVES: bool = true;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        vec![shape_of("gru", inputs, &self.steps, [3, 4, 1]).into()]
    }

    /// Saves the gates `[rows, 3 n]`, and `W_hn h + b_hn` (for [`GruReset::Before`]: `r h`).
    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs(0..5).outputs([0]).saved(2)
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
        let keep = needs.contains(&true);
        let (mut h, bias) = (inputs.take_tensor::<2>(4), inputs.take_tensor::<1>(3));
        let n = h.dims()[1];
        let projected = project(inputs.take_tensor(0), inputs.take_tensor(1), bias.clone().narrow(0, 0, 3 * n)); // [rows, 3 n]
        let b_hn = bias.narrow(0, 3 * n, n).unsqueeze::<2>();
        let w = inputs.take_tensor::<2>(2).transpose(); // [n, 3 n]
        let (w_rz, w_n) = (w.clone().narrow(1, 0, 2 * n), w.narrow(1, 2 * n, n));
        let (mut outputs, mut all_gates, mut saved) = (vec![], vec![], vec![]);
        for (step, rows) in self.steps.walk() {
            let active = rows.len();
            let before = h.clone().narrow(0, 0, active);
            let x = projected.clone().narrow(0, rows.start, active);
            let r_z = sigmoid(x.clone().narrow(1, 0, 2 * n) + matmul(before.clone(), w_rz.clone()));
            let (r, z) = (gate(&r_z, 0, n), gate(&r_z, 1, n));
            let (sum, save) = match self.reset {
                GruReset::After => {
                    let hidden = matmul(before.clone(), w_n.clone()) + b_hn.clone();
                    (r * hidden.clone(), hidden)
                }
                GruReset::Before => {
                    let state = r * before.clone();
                    (matmul(state.clone(), w_n.clone()) + b_hn.clone(), state)
                }
            };
            let new = tanh(gate(&x, 2, n) + sum);
            let output = new.clone() + z * (before - new.clone());
            if keep {
                all_gates.push((step, Tensor::cat(vec![r_z, new], 1)));
                saved.push((step, save));
            }
            h = replace(h, output.clone());
            outputs.push((step, output));
        }
        let kept = keep.then(|| [in_order(all_gates), in_order(saved)].map(primitive));
        let output = Tensor::cat(vec![in_order(outputs), h], 0);
        Outcome::new([primitive(output)]).saving(kept.into_iter().flatten())
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let [x, w_ih, w_hh] = [0, 1, 2].map(|i| residuals.take_tensor::<2>(i));
        let [h0, output, gates, saved] = [4, 5, 6, 7].map(|i| residuals.take_tensor::<2>(i));
        let (grad, needs) = (grads.take_tensor::<2>(0), wanted.needs::<5>());
        let (n, rows, b) = (h0.dims()[1], self.steps.rows(), self.steps.batch());
        let before = self.steps.before(&output.narrow(0, 0, rows), &h0);
        let (w_rz, w_n) = (w_hh.clone().narrow(0, 0, 2 * n), w_hh.narrow(0, 2 * n, n));

        // Factors that do not depend on the next step are computed for all steps at once.
        let [r, z, new] = [0, 1, 2].map(|k| gate(&gates, k, n));
        let one_minus = |x: &Tensor<B, 2>| x.clone().neg().add_scalar(1.0);
        let slope = |y: &Tensor<B, 2>| y.clone() * one_minus(y);
        let to_z = (before.clone() - new.clone()) * slope(&z);
        let to_new = one_minus(&z) * one_minus(&(new.clone() * new));
        let reset_slope = match self.reset {
            GruReset::After => saved.clone() * slope(&r),
            GruReset::Before => before.clone() * slope(&r),
        };
        let mut dh = grad.clone().narrow(0, rows, b);
        let (mut grad_gates, mut grad_hidden) = (vec![], vec![]);
        for (step, rows) in self.steps.walk().into_iter().rev() {
            let at = |x: &Tensor<B, 2>| x.clone().narrow(0, rows.start, rows.len());
            let d_output = dh.clone().narrow(0, 0, rows.len()) + at(&grad);
            let (d_z, d_new) = (d_output.clone() * at(&to_z), d_output.clone() * at(&to_new));
            // Gradient of the previous state through the update gate.
            let straight = d_output * at(&z);
            let (d_r, through_new) = match self.reset {
                GruReset::After => {
                    let d_hidden = d_new.clone() * at(&r);
                    grad_hidden.push((step, d_hidden.clone()));
                    (d_new.clone() * at(&reset_slope), matmul(d_hidden, w_n.clone()))
                }
                GruReset::Before => {
                    let d_state = matmul(d_new.clone(), w_n.clone());
                    (d_state.clone() * at(&reset_slope), d_state * at(&r))
                }
            };
            let d_rz = Tensor::cat(vec![d_r, d_z], 1);
            dh = replace(dh, straight + through_new + matmul(d_rz.clone(), w_rz.clone()));
            grad_gates.push((step, Tensor::cat(vec![d_rz, d_new], 1)));
        }
        let grad_gates = in_order(grad_gates); // [rows, 3 n]
        // The gradient of the new gate's weights uses the gradient after the reset gate, or the state after it.
        let (grad_new, state) = match self.reset {
            GruReset::After => (in_order(grad_hidden), before.clone()),
            GruReset::Before => (gate(&grad_gates, 2, n), saved),
        };
        let dw_hh = needs[2].then(|| {
            let d_rz = matmul(grad_gates.clone().narrow(1, 0, 2 * n).transpose(), before);
            primitive(Tensor::cat(vec![d_rz, matmul(grad_new.clone().transpose(), state)], 0))
        });
        let [dx, dw_ih, db] = project_backward(x, w_ih, grad_gates, [needs[0], needs[1], needs[3]]);
        let db = db.map(|db| primitive(Tensor::cat(vec![db, sum_rows(grad_new)], 1).reshape([4 * n])));
        let dh = needs[4].then(|| primitive(dh));
        Values::optional_floats([dx.map(primitive), dw_ih.map(primitive), dw_hh, db, dh])
    }
}
