use crate::{
    dispatch::{in_pool, vectorized},
    math::tanh,
    matmul::{Layout, Matrix, matmul},
    recurrent::product::{Plan, Product},
    recurrent::steps::Steps,
};

/// Activation function of a plain recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum RnnActivation {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

/// Runs a plain recurrent layer over packed sequences, in one direction, as `torch.nn.RNN`: `h = f(x + W_hh h)`.
///
/// `b` is the number of sequences, `s` the number of packed rows, `n` the number of hidden units.
///
/// - `w_hh` `[n, n]`: state weights.
/// - `output` `[s, n]`: projected inputs with both biases; overwritten with the hidden states.
/// - `h` `[b, n]`: initial states; overwritten with the states after each sequence's last step.
///
/// # Panics
/// If the size of a slice does not match.
pub fn rnn(steps: &Steps, activation: RnnActivation, w_hh: &[f32], output: &mut [f32], h: &mut [f32]) {
    let Some(n) = steps.hidden(output.len(), w_hh.len(), 1) else { return };
    in_pool(|| {
        let plan = Plan::new(steps, w_hh.len());
        let product = Product::new(w_hh, n, n, Layout { stride: n, transposed: true }, steps, &plan);
        let states = steps.split_state(&plan.groups, n, h).into_iter();
        plan.run(states.zip(steps.split(&plan.groups, n, output)).collect(), |(h, mut output)| {
            for step in steps.order() {
                let output = &mut *output[step];
                product.add(h, n, output.len() / n, output, n);
                match activation {
                    RnnActivation::Tanh => tanh_in_place(output),
                    RnnActivation::Relu => relu_in_place(output),
                }
                h[..output.len()].copy_from_slice(output);
            }
        });
    });
}

/// Computes the gradients of [`rnn`].
///
/// - `output`: the result of [`rnn`].
/// - `h0` `[b, n]`: initial states.
/// - `grad` `[s, n]`: gradient of the output; overwritten with that of the projected inputs.
/// - `grad_h` `[b, n]`: gradient of the final states; overwritten with that of the initial states.
/// - `grad_w_hh` `[n, n]`: receives the gradient of the weights, if `Some`.
///
/// # Panics
/// If the size of a slice does not match.
#[allow(clippy::too_many_arguments)]
pub fn rnn_backward(
    steps: &Steps,
    activation: RnnActivation,
    w_hh: &[f32],
    output: &[f32],
    h0: &[f32],
    grad: &mut [f32],
    grad_h: &mut [f32],
    grad_w_hh: Option<&mut [f32]>,
) {
    assert!(output.len() == grad.len() && h0.len() == grad_h.len());
    let Some(n) = steps.hidden(output.len(), w_hh.len(), 1) else {
        return grad_w_hh.into_iter().for_each(|grad| grad.fill(0.0));
    };
    in_pool(|| {
        let plan = Plan::new(steps, w_hh.len());
        let product = Product::new(w_hh, n, n, Layout { stride: n, transposed: false }, steps, &plan);
        let states = steps.split_state(&plan.groups, n, grad_h);
        let tasks = plan.groups.iter().zip(states).zip(steps.split(&plan.groups, n, grad)).collect();
        plan.run(tasks, |((group, grad_h), mut grad)| {
            for step in steps.order().rev() {
                let at = steps.rows_at(step, group);
                let (output, grad) = (&output[at.start * n..at.end * n], &mut *grad[step]);
                match activation {
                    RnnActivation::Tanh => tanh_backward(output, grad, grad_h),
                    RnnActivation::Relu => relu_backward(output, grad, grad_h),
                }
                product.add(grad, n, at.len(), grad_h, n);
            }
        });
        if let Some(grad_w_hh) = grad_w_hh {
            let before = steps.gather_before(n, output, h0);
            let rows = steps.rows();
            matmul(Matrix::new(grad, rows, n).transpose(), Matrix::new(&before, rows, n), None, grad_w_hh);
        }
    });
}

vectorized! {
    fn tanh_in_place<FUSED>(x: &mut [f32]) {
        for x in x {
            *x = tanh::<FUSED>(*x);
        }
    }
}

vectorized! {
    fn relu_in_place<_FUSED>(x: &mut [f32]) {
        for x in x {
            // The comparison is false for NaN, so that NaN propagates.
            *x = if *x < 0.0 { 0.0 } else { *x };
        }
    }
}

vectorized! {
    // Replaces `grad` by the gradient of the pre-activation, and sets `grad_h` to 0.
    fn tanh_backward<_FUSED>(y: &[f32], grad: &mut [f32], grad_h: &mut [f32]) {
        for ((&y, grad), grad_h) in y.iter().zip(grad).zip(grad_h) {
            *grad = (*grad + *grad_h) * (1.0 - y * y);
            *grad_h = 0.0;
        }
    }
}

vectorized! {
    fn relu_backward<_FUSED>(y: &[f32], grad: &mut [f32], grad_h: &mut [f32]) {
        for ((&y, grad), grad_h) in y.iter().zip(grad).zip(grad_h) {
            *grad = if y <= 0.0 { 0.0 } else { *grad + *grad_h };
            *grad_h = 0.0;
        }
    }
}
