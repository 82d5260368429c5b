use burn::tensor::{
    Tensor,
    activation::{relu, tanh},
    ops::FloatTensor,
};

use super::{
    RnnActivation, Steps, float, primitive, project, project_backward,
    steps::{in_order, replace},
};
use crate::{Backend, matmul};

pub(in super::super) fn rnn<B: Backend>(
    inputs: [FloatTensor<B>; 5],
    activation: RnnActivation,
    steps: &Steps,
) -> FloatTensor<B> {
    let [x, w_ih, w_hh, bias, h] = inputs;
    let mut h = float::<B, 2>(h); // [b, n]
    let projected = project(float(x), float(w_ih), float(bias)); // [rows, n]
    let w = float::<B, 2>(w_hh).transpose();
    let mut outputs = vec![];
    for (step, rows) in steps.walk() {
        let alive = rows.len();
        let sum = projected.clone().narrow(0, rows.start, alive) + matmul(h.clone().narrow(0, 0, alive), w.clone());
        let output = match activation {
            RnnActivation::Tanh => tanh(sum),
            RnnActivation::Relu => relu(sum),
        };
        h = replace(h, output.clone());
        outputs.push((step, vec![output]));
    }
    primitive(Tensor::cat(vec![in_order(outputs), h], 0))
}

pub(in super::super) fn rnn_backward<B: Backend>(
    inputs: [FloatTensor<B>; 5],
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
    activation: RnnActivation,
    steps: &Steps,
    needs: [bool; 5],
) -> [Option<FloatTensor<B>>; 5] {
    let [x, w_ih, w_hh, bias, h0] = inputs;
    let (w_hh, h0, grad) = (float::<B, 2>(w_hh), float::<B, 2>(h0), float::<B, 2>(grad));
    let (rows, b) = (steps.rows(), steps.batch());
    let output = float::<B, 2>(output).narrow(0, 0, rows);
    let slope = match activation {
        RnnActivation::Tanh => (output.clone() * output.clone()).neg().add_scalar(1.0),
        RnnActivation::Relu => output.clone().greater_elem(0.0).float().cast(output.dtype()),
    };
    let mut dh = grad.clone().narrow(0, rows, b);
    let mut grads = vec![];
    for (step, rows) in steps.walk().into_iter().rev() {
        let at = |x: &Tensor<B, 2>| x.clone().narrow(0, rows.start, rows.len());
        let d_sum = (dh.clone().narrow(0, 0, rows.len()) + at(&grad)) * at(&slope);
        dh = replace(dh, matmul(d_sum.clone(), w_hh.clone()));
        grads.push((step, vec![d_sum]));
    }
    let d_sums = in_order(grads); // [rows, n]
    let dw_hh = needs[2].then(|| primitive(matmul(d_sums.clone().transpose(), steps.before(&output, &h0))));
    let n = float::<B, 1>(bias).dims()[0];
    let [dx, dw_ih, db] = project_backward(float(x), float(w_ih), d_sums, [needs[0], needs[1], needs[3]]);
    let db = db.map(|db| primitive(db.reshape([n])));
    [dx.map(primitive), dw_ih.map(primitive), dw_hh, db, needs[4].then(|| primitive(dh))]
}
