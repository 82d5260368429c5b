//! Layers of recurrent networks, each one operation: written with Burn's operations, one step after another. The defaults
//! of [`Backend`](super::Backend).
//!
//! The backward passes follow the same walk the other way round, and leave what is one product over all steps to the end:
//! the gradients of weights, biases and inputs.

mod gru;
mod lstm;
mod rnn;
mod steps;

pub(super) use gru::{gru, gru_backward};
pub(super) use lstm::{lstm, lstm_backward};
pub(super) use rnn::{rnn, rnn_backward};
pub use steps::Steps;

use burn::tensor::{Tensor, ops::FloatTensor};

use super::{Backend, at_least_f32, float, primitive};
use crate::matmul;

/// Where the reset gate of a GRU acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum GruReset {
    /// On the product with the hidden state, as in PyTorch and cuDNN: `n = tanh(x_n + r (W_hn h + b_hn))`.
    #[default]
    After,
    /// On the hidden state: `n = tanh(x_n + W_hn (r h) + b_hn)`, as in Cho et al., 2014.
    Before,
}

/// The non-linearity of a plain recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RnnActivation {
    /// The hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`
    Relu,
}

/// What a recurrent layer gives, and what its backward pass needs besides: `K` tensors, where they were asked for.
pub type Recurrence<B, const K: usize> = (FloatTensor<B>, Option<[FloatTensor<B>; K]>);

/// The inputs of all steps through their weights, `[rows, gates n]`.
pub(super) fn project<B: Backend>(x: Tensor<B, 2>, w_ih: Tensor<B, 2>, bias: Tensor<B, 1>) -> Tensor<B, 2> {
    matmul(x, w_ih.transpose()) + bias.unsqueeze()
}

/// Columns of gate `i` of those that lie side by side.
fn gate<B: Backend>(gates: &Tensor<B, 2>, i: usize, n: usize) -> Tensor<B, 2> {
    gates.clone().narrow(1, i * n, n)
}

/// `[rows, n]` to `[1, n]`, added up in at least f32.
pub(super) fn sum_rows<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let dtype = x.dtype();
    let sum = at_least_f32(x).sum_dim(0);
    if sum.dtype() == dtype { sum } else { sum.cast(dtype) }
}

/// The gradients of what precedes the recurrence, of `x`, `w_ih` and the bias, as far as they are needed.
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
