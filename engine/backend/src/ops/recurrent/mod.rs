//! Recurrent layers. Each is one operation, composed step by step.
//!
//! The derivatives run the steps in reverse. The gradients of weights, biases and inputs are products over all steps,
//! computed at the end.

mod gru;
mod lstm;
mod rnn;
mod steps;

pub use gru::Gru;
pub use lstm::Lstm;
pub use rnn::Rnn;
pub use steps::Steps;

use burn::tensor::Tensor;

use super::{
    Backend, GruReset, Operation, Outcome, Residuals, RnnActivation, Rules, Shapes, Values, Wanted, at_least_f32,
    primitive, to_dtype,
};
use crate::matmul;

impl Operation {
    /// Returns a recurrent layer restricted to its first step, and the steps; `None` for other operations and layers of one
    /// step. Dtypes of the results are the same.
    pub fn first_step(&self) -> Option<(Self, &Steps)> {
        let (Self::Lstm(Lstm { steps }) | Self::Gru(Gru { steps, .. }) | Self::Rnn(Rnn { steps, .. })) = self else {
            return None;
        };
        let first = match self {
            Self::Gru(gru) => Gru { steps: steps.first(), ..gru.clone() }.into(),
            Self::Rnn(rnn) => Rnn { steps: steps.first(), ..rnn.clone() }.into(),
            _ => Lstm { steps: steps.first() }.into(),
        };
        (steps.sizes().len() > 1).then_some((first, steps))
    }
}

/// Checks the shapes of a layer's inputs: `x`, `w_ih`, `w_hh`, the bias of `bias` gates, and `states` states.
///
/// Returns the shape of the output: the hidden states of each row, then the states after each sequence's last step.
#[track_caller]
fn shape_of(operation: &str, inputs: &Shapes, steps: &Steps, [gates, bias, states]: [usize; 3]) -> [usize; 2] {
    let [rows, i] = inputs.dims(operation, 0);
    let [b, n] = inputs.dims(operation, 4);
    inputs.require([rows, b] == [steps.rows(), steps.batch()], operation, "x [rows, i] and states [b, n] of the steps");
    let weights = inputs.get(1) == Some(&[gates * n, i]) && inputs.get(2) == Some(&[gates * n, n]);
    inputs.require(weights, operation, "w_ih [gates n, i] and w_hh [gates n, n]");
    inputs.require(inputs.get(3) == Some(&[bias * n]), operation, "a bias of all gates");
    inputs.require((4..4 + states).all(|state| inputs.get(state) == Some(&[b, n])), operation, "states [b, n]");
    [rows + states * b, n]
}

/// Applies the input weights to all steps, `[rows, gates n]`.
pub(super) fn project<B: Backend>(x: Tensor<B, 2>, w_ih: Tensor<B, 2>, bias: Tensor<B, 1>) -> Tensor<B, 2> {
    matmul(x, w_ih.transpose()) + bias.unsqueeze()
}

/// Columns of gate `i`.
fn gate<B: Backend>(gates: &Tensor<B, 2>, i: usize, n: usize) -> Tensor<B, 2> {
    gates.clone().narrow(1, i * n, n)
}

/// Sums rows, `[rows, n]` to `[1, n]`, in at least f32.
pub(super) fn sum_rows<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let dtype = x.dtype();
    let sum = at_least_f32(x).sum_dim(0);
    to_dtype(sum, dtype)
}

/// Computes the gradients of `x`, `w_ih` and the bias, if needed, from that of their product.
pub(super) fn project_backward<B: Backend>(
    x: Tensor<B, 2>,
    w_ih: Tensor<B, 2>,
    grad: Tensor<B, 2>,
    needs: [bool; 3],
) -> [Option<Tensor<B, 2>>; 3] {
    [
        needs[0].then(|| matmul(grad.clone(), w_ih)),
        needs[1].then(|| matmul(grad.clone().transpose(), x)),
        needs[2].then(|| sum_rows(grad)),
    ]
}
