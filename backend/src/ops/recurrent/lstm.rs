use burn::tensor::{
    Tensor,
    activation::{sigmoid, tanh},
    ops::FloatTensor,
};

use super::{
    Recurrence, Steps, float, gate, primitive, project, project_backward,
    steps::{in_order, replace},
};
use crate::{Backend, matmul};

pub(in super::super) fn lstm<B: Backend>(inputs: [FloatTensor<B>; 6], steps: &Steps, keep: bool) -> Recurrence<B, 2> {
    let [x, w_ih, w_hh, bias, h, c] = inputs;
    let (mut h, mut c) = (float::<B, 2>(h), float::<B, 2>(c)); // [b, n]
    let n = h.dims()[1];
    let projected = project(float(x), float(w_ih), float(bias)); // [rows, 4 n]
    let w = float::<B, 2>(w_hh).transpose();
    let (mut outputs, mut all_gates, mut cells) = (vec![], vec![], vec![]);
    for (step, rows) in steps.walk() {
        let alive = rows.len();
        let from_state = matmul(h.clone().narrow(0, 0, alive), w.clone());
        let gates = projected.clone().narrow(0, rows.start, alive) + from_state;
        let (i, f) = (sigmoid(gate(&gates, 0, n)), sigmoid(gate(&gates, 1, n)));
        let (g, o) = (tanh(gate(&gates, 2, n)), sigmoid(gate(&gates, 3, n)));
        let cell = f.clone() * c.clone().narrow(0, 0, alive) + i.clone() * g.clone();
        let output = o.clone() * tanh(cell.clone());
        if keep {
            all_gates.push((step, vec![Tensor::cat(vec![i, f, g, o], 1)]));
            cells.push((step, vec![cell.clone()]));
        }
        (h, c) = (replace(h, output.clone()), replace(c, cell));
        outputs.push((step, vec![output]));
    }
    let kept = keep.then(|| [in_order(all_gates), in_order(cells)].map(primitive));
    (primitive(Tensor::cat(vec![in_order(outputs), h, c], 0)), kept)
}

pub(in super::super) fn lstm_backward<B: Backend>(
    inputs: [FloatTensor<B>; 6],
    kept: [FloatTensor<B>; 2],
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
    steps: &Steps,
    needs: [bool; 6],
) -> [Option<FloatTensor<B>>; 6] {
    let [x, w_ih, w_hh, _, h0, c0] = inputs.map(Some);
    let input = |x: Option<FloatTensor<B>>| float::<B, 2>(x.expect("taken once"));
    let (h0, c0, w_hh) = (input(h0), input(c0), input(w_hh));
    let [gates, cells] = kept.map(float::<B, 2>);
    let (grad, n, rows, b) = (float::<B, 2>(grad), h0.dims()[1], steps.rows(), steps.batch());
    let mut dh = grad.clone().narrow(0, rows, b);
    let mut dc = grad.clone().narrow(0, rows + b, b);
    let c_before = steps.before(&cells, &c0);
    // What does not depend on the step after is computed for all steps at once.
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
    for (step, rows) in steps.walk().into_iter().rev() {
        let at = |x: &Tensor<B, 2>| x.clone().narrow(0, rows.start, rows.len());
        let alive = |x: &Tensor<B, 2>| x.clone().narrow(0, 0, rows.len());
        let d_output = alive(&dh) + at(&grad);
        let d_cell = alive(&dc) + d_output.clone() * at(&to_cell);
        let through_cell = [&to_i, &to_f, &to_g].map(|to| d_cell.clone() * at(to));
        let d_gates = Tensor::cat(through_cell.into_iter().chain([d_output * at(&to_o)]).collect(), 1); // [alive, 4 n]
        dh = replace(dh, matmul(d_gates.clone(), w_hh.clone()));
        dc = replace(dc, d_cell * at(&f));
        grad_gates.push((step, vec![d_gates]));
    }
    let grad_gates = in_order(grad_gates); // [rows, 4 n]
    let h_before = || steps.before(&float::<B, 2>(output).narrow(0, 0, rows), &h0);
    let dw_hh = needs[2].then(|| matmul(grad_gates.clone().transpose(), h_before()));
    let [dx, dw_ih, db] = project_backward(input(x), input(w_ih), grad_gates, [needs[0], needs[1], needs[3]]);
    let db = db.map(|db| primitive(db.reshape([4 * n])));
    let (dh, dc) = (needs[4].then(|| primitive(dh)), needs[5].then(|| primitive(dc)));
    [dx.map(primitive), dw_ih.map(primitive), dw_hh.map(primitive), db, dh, dc]
}
