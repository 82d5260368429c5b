//! Recurrent layers on flex, for f32: one kernel call for all steps.

use burn::tensor::{Shape, ops::FloatTensor};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Matrix};

use super::{changed, contiguous, elements, is_f32, tensor};
use crate::ops::{GruReset, Recurrence, RnnActivation, Steps, recurrent};

/// Numbers of rows, sequences, inputs and hidden units.
struct Sizes {
    rows: usize,
    b: usize,
    i: usize,
    n: usize,
}

impl Sizes {
    fn of(steps: &Steps, x: &FlexTensor, h: &FlexTensor) -> Self {
        Self { rows: steps.rows(), b: steps.batch(), i: x.layout().shape()[1], n: h.layout().shape()[1] }
    }
}

fn walk(steps: &Steps) -> kernels::Steps {
    kernels::Steps::new(steps.sizes(), steps.is_reverse())
}

fn all_f32<'a>(tensors: impl IntoIterator<Item = &'a FlexTensor>) -> bool {
    tensors.into_iter().all(is_f32)
}

/// Projects the inputs of all steps by their weights.
fn project(x: &FlexTensor, w_ih: &FlexTensor, bias: &[f32], sizes: &Sizes) -> Vec<f32> {
    let w_ih = Matrix::new(elements(w_ih), bias.len(), sizes.i);
    kernels::product(Matrix::new(elements(x), sizes.rows, sizes.i), w_ih.transpose(), Some(bias))
}

/// Returns the gradients of `x` and `w_ih`, as far as they are needed, given that of their product, `[rows, wide]`.
fn project_backward(
    x: &FlexTensor,
    w_ih: &FlexTensor,
    grad: &[f32],
    sizes: &Sizes,
    needs: [bool; 2],
) -> [Option<FlexTensor>; 2] {
    let &Sizes { rows, i, .. } = sizes;
    let wide = w_ih.layout().shape()[0];
    let grad = Matrix::new(grad, rows, wide);
    let product =
        |a: Matrix<'_>, b: Matrix<'_>, shape: [usize; 2]| tensor(kernels::product(a, b, None), Shape::from(shape));
    [
        needs[0].then(|| product(grad, Matrix::new(elements(w_ih), wide, i), [rows, i])),
        needs[1].then(|| product(grad.transpose(), Matrix::new(elements(x), rows, i), [wide, i])),
    ]
}

/// Allocates the gradient of recurrent weights if it is needed.
fn room(w_hh: &FlexTensor, needed: bool) -> Option<Vec<f32>> {
    needed.then(|| vec![0.0; elements(w_hh).len()])
}

/// Returns a tensor of the shape of another.
fn like(values: Option<Vec<f32>>, x: &FlexTensor) -> Option<FlexTensor> {
    values.map(|values| tensor(values, x.layout().shape().clone()))
}

pub(super) fn lstm(inputs: [FloatTensor<Flex>; 6], steps: &Steps, keep: bool) -> Recurrence<Flex, 2> {
    if !all_f32(&inputs) {
        return recurrent::lstm::<Flex>(inputs, steps, keep);
    }
    let [x, w_ih, w_hh, bias, h0, c0] = inputs.map(contiguous);
    let sizes @ Sizes { rows, b, n, .. } = &Sizes::of(steps, &x, &h0);
    let (rows, b, n) = (*rows, *b, *n);
    let (mut output, mut gates) = (vec![0.0; (rows + 2 * b) * n], vec![]);
    let mut cells = keep.then(|| vec![0.0; rows * n]);
    let (hidden, states) = output.split_at_mut(rows * n);
    let (h, c) = states.split_at_mut(b * n);
    h.copy_from_slice(elements(&h0));
    c.copy_from_slice(elements(&c0));
    kernels::in_pool(|| {
        gates = project(&x, &w_ih, elements(&bias), sizes);
        kernels::lstm(&walk(steps), elements(&w_hh), &mut gates, h, c, hidden, cells.as_deref_mut());
    });
    let kept = cells.map(|cells| [tensor(gates, [rows, 4 * n].into()), tensor(cells, [rows, n].into())]);
    (tensor(output, [rows + 2 * b, n].into()), kept)
}

pub(super) fn lstm_backward(
    inputs: [FloatTensor<Flex>; 6],
    kept: [FloatTensor<Flex>; 2],
    output: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
    steps: &Steps,
    needs: [bool; 6],
) -> [Option<FloatTensor<Flex>>; 6] {
    if !all_f32(inputs.iter().chain(&kept).chain([&output, &grad])) {
        return recurrent::lstm_backward::<Flex>(inputs, kept, output, grad, steps, needs);
    }
    let ([x, w_ih, w_hh, bias, h0, c0], [gates, cells]) = (inputs.map(contiguous), kept);
    let (output, grad, cells) = (contiguous(output), contiguous(grad), contiguous(cells));
    let sizes = Sizes::of(steps, &x, &h0);
    let Sizes { rows, b, n, .. } = sizes;
    let (grad_output, grad_states) = elements(&grad).split_at(rows * n);
    let (mut grad_h, mut grad_c) = (grad_states[..b * n].to_vec(), grad_states[b * n..].to_vec());
    let mut grad_w_hh = room(&w_hh, needs[2]);
    let mut grad_bias = needs[3].then(|| vec![0.0; 4 * n]);
    let mut projected = [None, None];
    changed(gates, |gates| {
        kernels::in_pool(|| {
            kernels::lstm_backward(
                &walk(steps),
                elements(&w_hh),
                gates,
                &elements(&output)[..rows * n],
                elements(&cells),
                elements(&h0),
                elements(&c0),
                grad_output,
                &mut grad_h,
                &mut grad_c,
                grad_w_hh.as_deref_mut(),
            );
            projected = project_backward(&x, &w_ih, gates, &sizes, [needs[0], needs[1]]);
            if let Some(grad_bias) = &mut grad_bias {
                kernels::sum_rows(Matrix::new(gates, rows, 4 * n), grad_bias);
            }
        });
    });
    let [dx, dw_ih] = projected;
    let (dh, dc) = (like(needs[4].then_some(grad_h), &h0), like(needs[5].then_some(grad_c), &c0));
    [dx, dw_ih, like(grad_w_hh, &w_hh), like(grad_bias, &bias), dh, dc]
}

fn gru_reset(reset: GruReset) -> kernels::GruReset {
    match reset {
        GruReset::After => kernels::GruReset::After,
        GruReset::Before => kernels::GruReset::Before,
    }
}

pub(super) fn gru(inputs: [FloatTensor<Flex>; 5], reset: GruReset, steps: &Steps, keep: bool) -> Recurrence<Flex, 2> {
    if !all_f32(&inputs) {
        return recurrent::gru::<Flex>(inputs, reset, steps, keep);
    }
    let [x, w_ih, w_hh, bias, h0] = inputs.map(contiguous);
    let sizes = Sizes::of(steps, &x, &h0);
    let Sizes { rows, b, n, .. } = sizes;
    let (mut output, mut gates) = (vec![0.0; (rows + b) * n], vec![]);
    let mut saved = vec![0.0; rows * n];
    let (bias, b_hn) = elements(&bias).split_at(3 * n);
    let (hidden, h) = output.split_at_mut(rows * n);
    h.copy_from_slice(elements(&h0));
    kernels::in_pool(|| {
        gates = project(&x, &w_ih, bias, &sizes);
        let (steps, w_hh) = (walk(steps), elements(&w_hh));
        kernels::gru(&steps, gru_reset(reset), w_hh, b_hn, &mut gates, h, hidden, &mut saved);
    });
    let kept = keep.then(|| [tensor(gates, [rows, 3 * n].into()), tensor(saved, [rows, n].into())]);
    (tensor(output, [rows + b, n].into()), kept)
}

pub(super) fn gru_backward(
    inputs: [FloatTensor<Flex>; 5],
    kept: [FloatTensor<Flex>; 2],
    output: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
    reset: GruReset,
    steps: &Steps,
    needs: [bool; 5],
) -> [Option<FloatTensor<Flex>>; 5] {
    if !all_f32(inputs.iter().chain(&kept).chain([&output, &grad])) {
        return recurrent::gru_backward::<Flex>(inputs, kept, output, grad, reset, steps, needs);
    }
    let ([x, w_ih, w_hh, bias, h0], [gates, saved]) = (inputs.map(contiguous), kept);
    let (output, grad) = (contiguous(output), contiguous(grad));
    let sizes = Sizes::of(steps, &x, &h0);
    let Sizes { rows, n, .. } = sizes;
    let (grad_output, grad_state) = elements(&grad).split_at(rows * n);
    let mut grad_h = grad_state.to_vec();
    let mut grad_w_hh = room(&w_hh, needs[2]);
    let mut grad_bias = vec![0.0; 4 * n];
    let mut projected = [None, None];
    changed(gates, |gates| {
        changed(saved, |saved| {
            kernels::in_pool(|| {
                let (grad_bias, grad_b_hn) = grad_bias.split_at_mut(3 * n);
                kernels::gru_backward(
                    &walk(steps),
                    gru_reset(reset),
                    elements(&w_hh),
                    gates,
                    saved,
                    &elements(&output)[..rows * n],
                    elements(&h0),
                    grad_output,
                    &mut grad_h,
                    grad_w_hh.as_deref_mut(),
                    grad_b_hn,
                );
                projected = project_backward(&x, &w_ih, gates, &sizes, [needs[0], needs[1]]);
                if needs[3] {
                    kernels::sum_rows(Matrix::new(gates, rows, 3 * n), grad_bias);
                }
            });
        });
    });
    let [dx, dw_ih] = projected;
    let (db, dh) = (like(needs[3].then_some(grad_bias), &bias), like(needs[4].then_some(grad_h), &h0));
    [dx, dw_ih, like(grad_w_hh, &w_hh), db, dh]
}

fn rnn_activation(activation: RnnActivation) -> kernels::RnnActivation {
    match activation {
        RnnActivation::Tanh => kernels::RnnActivation::Tanh,
        RnnActivation::Relu => kernels::RnnActivation::Relu,
    }
}

pub(super) fn rnn(inputs: [FloatTensor<Flex>; 5], activation: RnnActivation, steps: &Steps) -> FloatTensor<Flex> {
    if !all_f32(&inputs) {
        return recurrent::rnn::<Flex>(inputs, activation, steps);
    }
    let [x, w_ih, w_hh, bias, h0] = inputs.map(contiguous);
    let sizes = Sizes::of(steps, &x, &h0);
    let Sizes { rows, b, n, .. } = sizes;
    let mut output = vec![];
    kernels::in_pool(|| {
        output = project(&x, &w_ih, elements(&bias), &sizes);
        output.extend_from_slice(elements(&h0));
        let (hidden, h) = output.split_at_mut(rows * n);
        kernels::rnn(&walk(steps), rnn_activation(activation), elements(&w_hh), hidden, h);
    });
    tensor(output, [rows + b, n].into())
}

pub(super) fn rnn_backward(
    inputs: [FloatTensor<Flex>; 5],
    output: FloatTensor<Flex>,
    grad: FloatTensor<Flex>,
    activation: RnnActivation,
    steps: &Steps,
    needs: [bool; 5],
) -> [Option<FloatTensor<Flex>>; 5] {
    if !all_f32(inputs.iter().chain([&output, &grad])) {
        return recurrent::rnn_backward::<Flex>(inputs, output, grad, activation, steps, needs);
    }
    let [x, w_ih, w_hh, bias, h0] = inputs.map(contiguous);
    let output = contiguous(output);
    let sizes = Sizes::of(steps, &x, &h0);
    let Sizes { rows, n, .. } = sizes;
    let (mut grad_h, mut grad_w_hh) = (vec![], room(&w_hh, needs[2]));
    let mut grad_bias = needs[3].then(|| vec![0.0; n]);
    let mut projected = [None, None];
    changed(grad, |grad| {
        let (grad, grad_state) = grad.split_at_mut(rows * n);
        grad_h = grad_state.to_vec();
        kernels::in_pool(|| {
            kernels::rnn_backward(
                &walk(steps),
                rnn_activation(activation),
                elements(&w_hh),
                &elements(&output)[..rows * n],
                elements(&h0),
                grad,
                &mut grad_h,
                grad_w_hh.as_deref_mut(),
            );
            projected = project_backward(&x, &w_ih, grad, &sizes, [needs[0], needs[1]]);
            if let Some(grad_bias) = &mut grad_bias {
                kernels::sum_rows(Matrix::new(grad, rows, n), grad_bias);
            }
        });
    });
    let [dx, dw_ih] = projected;
    let (db, dh) = (like(grad_bias, &bias), like(needs[4].then_some(grad_h), &h0));
    [dx, dw_ih, like(grad_w_hh, &w_hh), db, dh]
}
