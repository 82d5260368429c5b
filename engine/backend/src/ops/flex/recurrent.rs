//! Recurrent layers on flex, for f32: one kernel call for all steps.

use burn::tensor::Shape;
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Matrix};

use super::{contiguous, elements, map_in_place, tensor};
use crate::ops::{Gru, Lstm, Outcome, Rnn, Steps, Values, Wanted};

/// Numbers of packed rows, sequences, inputs and hidden units.
#[derive(Clone, Copy)]
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

fn kernel_steps(steps: &Steps) -> kernels::Steps {
    kernels::Steps::new(steps.sizes(), steps.is_reverse())
}

/// Applies the input weights to all steps.
fn project(x: &FlexTensor, w_ih: &FlexTensor, bias: &[f32], sizes: Sizes) -> Vec<f32> {
    let w_ih = Matrix::new(elements(w_ih), bias.len(), sizes.i);
    kernels::product(Matrix::new(elements(x), sizes.rows, sizes.i), w_ih.transpose(), Some(bias))
}

/// Returns the gradients of `x` and `w_ih`, if needed, from that of their product, `[rows, wide]`.
fn project_backward(
    x: &FlexTensor,
    w_ih: &FlexTensor,
    grad: &[f32],
    sizes: Sizes,
    needs: [bool; 2],
) -> [Option<FlexTensor>; 2] {
    let Sizes { rows, i, .. } = sizes;
    let wide = w_ih.layout().shape()[0];
    let grad = Matrix::new(grad, rows, wide);
    let product =
        |a: Matrix<'_>, b: Matrix<'_>, shape: [usize; 2]| tensor(kernels::product(a, b, None), Shape::from(shape));
    [
        needs[0].then(|| product(grad, Matrix::new(elements(w_ih), wide, i), [rows, i])),
        needs[1].then(|| product(grad.transpose(), Matrix::new(elements(x), rows, i), [wide, i])),
    ]
}

/// Allocates the gradient of the recurrent weights, if needed.
fn zeros_if(w_hh: &FlexTensor, needed: bool) -> Option<Vec<f32>> {
    needed.then(|| vec![0.0; elements(w_hh).len()])
}

/// Creates a tensor with the shape of another.
fn like(values: Option<Vec<f32>>, x: &FlexTensor) -> Option<FlexTensor> {
    values.map(|values| tensor(values, x.layout().shape().clone()))
}

pub(super) fn lstm(lstm: &Lstm, inputs: Values<Flex>, needs: &[bool]) -> Outcome<Flex> {
    let [x, w_ih, w_hh, bias, h0, c0] = inputs.take_floats().map(contiguous);
    let (steps, save) = (&lstm.steps, needs.contains(&true));
    let sizes @ Sizes { rows, b, n, .. } = Sizes::of(steps, &x, &h0);
    let (mut output, mut gates) = (vec![0.0; (rows + 2 * b) * n], vec![]);
    let mut cells = save.then(|| vec![0.0; rows * n]);
    let (hidden, states) = output.split_at_mut(rows * n);
    let (h, c) = states.split_at_mut(b * n);
    h.copy_from_slice(elements(&h0));
    c.copy_from_slice(elements(&c0));
    kernels::in_pool(|| {
        gates = project(&x, &w_ih, elements(&bias), sizes);
        kernels::lstm(&kernel_steps(steps), elements(&w_hh), &mut gates, h, c, hidden, cells.as_deref_mut());
    });
    let saved = cells.map(|cells| [tensor(gates, [rows, 4 * n].into()), tensor(cells, [rows, n].into())]);
    Outcome::new([tensor(output, [rows + 2 * b, n].into())]).saving(saved.into_iter().flatten())
}

pub(super) fn lstm_vjp(lstm: &Lstm, residuals: Values<Flex>, mut grads: Values<Flex>, wanted: &Wanted) -> Values<Flex> {
    let [x, w_ih, w_hh, bias, h0, c0, output, gates, cells] = residuals.take_floats();
    let [x, w_ih, w_hh, bias, h0, c0, output, cells] = [x, w_ih, w_hh, bias, h0, c0, output, cells].map(contiguous);
    let (grad, steps, needs) = (contiguous(grads.take_float(0)), &lstm.steps, wanted.needs::<6>());
    let sizes @ Sizes { rows, b, n, .. } = Sizes::of(steps, &x, &h0);
    let (grad_output, grad_states) = elements(&grad).split_at(rows * n);
    let (mut grad_h, mut grad_c) = (grad_states[..b * n].to_vec(), grad_states[b * n..].to_vec());
    let mut grad_w_hh = zeros_if(&w_hh, needs[2]);
    let mut grad_bias = needs[3].then(|| vec![0.0; 4 * n]);
    let mut projected = [None, None];
    map_in_place(gates, |gates| {
        kernels::in_pool(|| {
            kernels::lstm_backward(
                &kernel_steps(steps),
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
            projected = project_backward(&x, &w_ih, gates, sizes, [needs[0], needs[1]]);
            if let Some(grad_bias) = &mut grad_bias {
                kernels::sum_rows(Matrix::new(gates, rows, 4 * n), grad_bias);
            }
        });
    });
    let [dx, dw_ih] = projected;
    let (dh, dc) = (like(needs[4].then_some(grad_h), &h0), like(needs[5].then_some(grad_c), &c0));
    Values::optional_floats([dx, dw_ih, like(grad_w_hh, &w_hh), like(grad_bias, &bias), dh, dc])
}

pub(super) fn gru(gru: &Gru, inputs: Values<Flex>, needs: &[bool]) -> Outcome<Flex> {
    let [x, w_ih, w_hh, bias, h0] = inputs.take_floats().map(contiguous);
    let (steps, reset, save) = (&gru.steps, gru.reset, needs.contains(&true));
    let sizes @ Sizes { rows, b, n, .. } = Sizes::of(steps, &x, &h0);
    let (mut output, mut gates) = (vec![0.0; (rows + b) * n], vec![]);
    let mut saved = vec![0.0; rows * n];
    let (bias, b_hn) = elements(&bias).split_at(3 * n);
    let (hidden, h) = output.split_at_mut(rows * n);
    h.copy_from_slice(elements(&h0));
    kernels::in_pool(|| {
        gates = project(&x, &w_ih, bias, sizes);
        let (steps, w_hh) = (kernel_steps(steps), elements(&w_hh));
        kernels::gru(&steps, reset, w_hh, b_hn, &mut gates, h, hidden, &mut saved);
    });
    let saved = save.then(|| [tensor(gates, [rows, 3 * n].into()), tensor(saved, [rows, n].into())]);
    Outcome::new([tensor(output, [rows + b, n].into())]).saving(saved.into_iter().flatten())
}

pub(super) fn gru_vjp(gru: &Gru, residuals: Values<Flex>, mut grads: Values<Flex>, wanted: &Wanted) -> Values<Flex> {
    let [x, w_ih, w_hh, bias, h0, output, gates, saved] = residuals.take_floats();
    let [x, w_ih, w_hh, bias, h0, output] = [x, w_ih, w_hh, bias, h0, output].map(contiguous);
    let (steps, reset, needs) = (&gru.steps, gru.reset, wanted.needs::<5>());
    let grad = contiguous(grads.take_float(0));
    let sizes @ Sizes { rows, n, .. } = Sizes::of(steps, &x, &h0);
    let (grad_output, grad_state) = elements(&grad).split_at(rows * n);
    let mut grad_h = grad_state.to_vec();
    let mut grad_w_hh = zeros_if(&w_hh, needs[2]);
    let mut grad_bias = vec![0.0; 4 * n];
    let mut projected = [None, None];
    map_in_place(gates, |gates| {
        map_in_place(saved, |saved| {
            kernels::in_pool(|| {
                let (grad_bias, grad_b_hn) = grad_bias.split_at_mut(3 * n);
                kernels::gru_backward(
                    &kernel_steps(steps),
                    reset,
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
                projected = project_backward(&x, &w_ih, gates, sizes, [needs[0], needs[1]]);
                if needs[3] {
                    kernels::sum_rows(Matrix::new(gates, rows, 3 * n), grad_bias);
                }
            });
        });
    });
    let [dx, dw_ih] = projected;
    let (db, dh) = (like(needs[3].then_some(grad_bias), &bias), like(needs[4].then_some(grad_h), &h0));
    Values::optional_floats([dx, dw_ih, like(grad_w_hh, &w_hh), db, dh])
}

pub(super) fn rnn(rnn: &Rnn, inputs: Values<Flex>) -> Outcome<Flex> {
    let [x, w_ih, w_hh, bias, h0] = inputs.take_floats().map(contiguous);
    let (steps, activation) = (&rnn.steps, rnn.activation);
    let sizes @ Sizes { rows, b, n, .. } = Sizes::of(steps, &x, &h0);
    let mut output = vec![];
    kernels::in_pool(|| {
        output = project(&x, &w_ih, elements(&bias), sizes);
        output.extend_from_slice(elements(&h0));
        let (hidden, h) = output.split_at_mut(rows * n);
        kernels::rnn(&kernel_steps(steps), activation, elements(&w_hh), hidden, h);
    });
    Outcome::new([tensor(output, [rows + b, n].into())])
}

pub(super) fn rnn_vjp(rnn: &Rnn, residuals: Values<Flex>, mut grads: Values<Flex>, wanted: &Wanted) -> Values<Flex> {
    let [x, w_ih, w_hh, bias, h0, output] = residuals.take_floats().map(contiguous);
    let (steps, activation, needs) = (&rnn.steps, rnn.activation, wanted.needs::<5>());
    let grad = grads.take_float(0);
    let sizes @ Sizes { rows, n, .. } = Sizes::of(steps, &x, &h0);
    let (mut grad_h, mut grad_w_hh) = (vec![], zeros_if(&w_hh, needs[2]));
    let mut grad_bias = needs[3].then(|| vec![0.0; n]);
    let mut projected = [None, None];
    map_in_place(grad, |grad| {
        let (grad, grad_state) = grad.split_at_mut(rows * n);
        grad_h = grad_state.to_vec();
        kernels::in_pool(|| {
            kernels::rnn_backward(
                &kernel_steps(steps),
                activation,
                elements(&w_hh),
                &elements(&output)[..rows * n],
                elements(&h0),
                grad,
                &mut grad_h,
                grad_w_hh.as_deref_mut(),
            );
            projected = project_backward(&x, &w_ih, grad, sizes, [needs[0], needs[1]]);
            if let Some(grad_bias) = &mut grad_bias {
                kernels::sum_rows(Matrix::new(grad, rows, n), grad_bias);
            }
        });
    });
    let [dx, dw_ih] = projected;
    let (db, dh) = (like(grad_bias, &bias), like(needs[4].then_some(grad_h), &h0));
    Values::optional_floats([dx, dw_ih, like(grad_w_hh, &w_hh), db, dh])
}
