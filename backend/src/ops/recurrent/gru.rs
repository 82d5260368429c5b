use burn::tensor::{
    Tensor,
    activation::{sigmoid, tanh},
    ops::FloatTensor,
};

use super::{
    GruReset, Recurrence, Steps, float, gate, primitive, project, project_backward,
    steps::{in_order, replace},
    sum_rows,
};
use crate::{Backend, matmul};

/// Kept for the backward pass: the gates `[rows, 3 n]`, and `W_hn h + b_hn` or, for [`GruReset::Before`], `r h`.
pub(in super::super) fn gru<B: Backend>(
    inputs: [FloatTensor<B>; 5],
    reset: GruReset,
    steps: &Steps,
    keep: bool,
) -> Recurrence<B, 2> {
    let [x, w_ih, w_hh, bias, h] = inputs;
    let (mut h, bias) = (float::<B, 2>(h), float::<B, 1>(bias));
    let n = h.dims()[1];
    let projected = project(float(x), float(w_ih), bias.clone().narrow(0, 0, 3 * n)); // [rows, 3 n]
    let b_hn = bias.narrow(0, 3 * n, n).unsqueeze::<2>();
    let w = float::<B, 2>(w_hh).transpose(); // [n, 3 n]
    let (w_rz, w_n) = (w.clone().narrow(1, 0, 2 * n), w.narrow(1, 2 * n, n));
    let (mut outputs, mut all_gates, mut saved) = (vec![], vec![], vec![]);
    for (step, rows) in steps.walk() {
        let alive = rows.len();
        let before = h.clone().narrow(0, 0, alive);
        let x = projected.clone().narrow(0, rows.start, alive);
        let r_z = sigmoid(x.clone().narrow(1, 0, 2 * n) + matmul(before.clone(), w_rz.clone()));
        let (r, z) = (gate(&r_z, 0, n), gate(&r_z, 1, n));
        let (sum, save) = match reset {
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
            all_gates.push((step, vec![Tensor::cat(vec![r_z, new], 1)]));
            saved.push((step, vec![save]));
        }
        h = replace(h, output.clone());
        outputs.push((step, vec![output]));
    }
    let kept = keep.then(|| [in_order(all_gates), in_order(saved)].map(primitive));
    (primitive(Tensor::cat(vec![in_order(outputs), h], 0)), kept)
}

pub(in super::super) fn gru_backward<B: Backend>(
    inputs: [FloatTensor<B>; 5],
    kept: [FloatTensor<B>; 2],
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
    reset: GruReset,
    steps: &Steps,
    needs: [bool; 5],
) -> [Option<FloatTensor<B>>; 5] {
    let [x, w_ih, w_hh, _, h0] = inputs;
    let (w_hh, h0, grad) = (float::<B, 2>(w_hh), float::<B, 2>(h0), float::<B, 2>(grad));
    let [gates, saved] = kept.map(float::<B, 2>);
    let (n, rows, b) = (h0.dims()[1], steps.rows(), steps.batch());
    let before = steps.before(&float::<B, 2>(output).narrow(0, 0, rows), &h0);
    let (w_rz, w_n) = (w_hh.clone().narrow(0, 0, 2 * n), w_hh.narrow(0, 2 * n, n));

    // What does not depend on the step after is computed for all steps at once.
    let [r, z, new] = [0, 1, 2].map(|k| gate(&gates, k, n));
    let one_minus = |x: &Tensor<B, 2>| x.clone().neg().add_scalar(1.0);
    let slope = |y: &Tensor<B, 2>| y.clone() * one_minus(y);
    let to_z = (before.clone() - new.clone()) * slope(&z);
    let to_new = one_minus(&z) * one_minus(&(new.clone() * new));
    let reset_slope = match reset {
        GruReset::After => saved.clone() * slope(&r),
        GruReset::Before => before.clone() * slope(&r),
    };
    let mut dh = grad.clone().narrow(0, rows, b);
    let (mut grad_gates, mut grad_hidden) = (vec![], vec![]);
    for (step, rows) in steps.walk().into_iter().rev() {
        let at = |x: &Tensor<B, 2>| x.clone().narrow(0, rows.start, rows.len());
        let d_output = dh.clone().narrow(0, 0, rows.len()) + at(&grad);
        let (d_z, d_new) = (d_output.clone() * at(&to_z), d_output.clone() * at(&to_new));
        // Through the update gate straight to the state before.
        let straight = d_output * at(&z);
        let (d_r, through_new) = match reset {
            GruReset::After => {
                let d_hidden = d_new.clone() * at(&r);
                grad_hidden.push((step, vec![d_hidden.clone()]));
                (d_new.clone() * at(&reset_slope), matmul(d_hidden, w_n.clone()))
            }
            GruReset::Before => {
                let d_state = matmul(d_new.clone(), w_n.clone());
                (d_state.clone() * at(&reset_slope), d_state * at(&r))
            }
        };
        let d_rz = Tensor::cat(vec![d_r, d_z], 1);
        dh = replace(dh, straight + through_new + matmul(d_rz.clone(), w_rz.clone()));
        grad_gates.push((step, vec![Tensor::cat(vec![d_rz, d_new], 1)]));
    }
    let grad_gates = in_order(grad_gates); // [rows, 3 n]
    // The new gate's weights see the gradient behind the reset gate, or the state behind it.
    let (grad_new, state) = match reset {
        GruReset::After => (in_order(grad_hidden), before.clone()),
        GruReset::Before => (gate(&grad_gates, 2, n), saved),
    };
    let dw_hh = needs[2].then(|| {
        let d_rz = matmul(grad_gates.clone().narrow(1, 0, 2 * n).transpose(), before);
        primitive(Tensor::cat(vec![d_rz, matmul(grad_new.clone().transpose(), state)], 0))
    });
    let [dx, dw_ih, db] = project_backward(float(x), float(w_ih), grad_gates, [needs[0], needs[1], needs[3]]);
    let db = db.map(|db| primitive(Tensor::cat(vec![db, sum_rows(grad_new)], 1).reshape([4 * n])));
    [dx.map(primitive), dw_ih.map(primitive), dw_hh, db, needs[4].then(|| primitive(dh))]
}
