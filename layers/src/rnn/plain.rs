use burn::tensor::Tensor;
use grove_backend::{
    Backend, RnnActivation, Steps,
    ops::{self, RecurrentInputs},
};
use grove_tree::{Array, Init, Tree};

use super::{
    Cell, Recurrent, RnnOptions, State,
    cell::{Weights, bias_or_zeros, split_states},
};

/// Layers of plain recurrent cells, like `torch.nn.RNN`.
pub type Rnn<B> = Recurrent<RnnCell<B>>;

/// An Elman cell, `h' = f(W_ih x + b_ih + W_hh h + b_hh)` (Elman, 1990), like `torch.nn.RNNCell`.
#[derive(Tree, Clone, Debug)]
pub struct RnnCell<B: Backend> {
    /// Input weights, `[n, inputs]`.
    pub weight_ih: Array<B, 2>,
    /// State weights, `[n, n]`.
    pub weight_hh: Array<B, 2>,
    /// Input bias, `[n]`; `None` for no biases.
    pub bias_ih: Option<Array<B, 1>>,
    /// State bias, `[n]`; `None` for no biases.
    pub bias_hh: Option<Array<B, 1>>,
    /// Activation function `f`.
    #[tree(static)]
    pub activation: RnnActivation,
}

impl<B: Backend> RnnCell<B> {
    /// Creates a cell with PyTorch's initial weights.
    pub fn new(inputs: usize, n: usize, activation: RnnActivation, bias: bool, init: impl Into<Init<B>>) -> Self {
        let init = &init.into();
        let Weights { w_ih, w_hh, b_ih, b_hh } = Weights::new([inputs, n, n, n], bias, init);
        Self { weight_ih: w_ih, weight_hh: w_hh, bias_ih: b_ih, bias_hh: b_hh, activation }
    }
}

impl<B: Backend> Cell<B, 1> for RnnCell<B> {
    fn state_sizes(&self) -> [usize; 1] {
        [self.weight_hh.shape()[1]]
    }

    #[track_caller]
    fn run(&self, x: Tensor<B, 2>, steps: &Steps, [h]: State<B, 1>) -> (Tensor<B, 2>, State<B, 1>) {
        let bias = bias_or_zeros(&self.bias_ih, &self.weight_ih) + bias_or_zeros(&self.bias_hh, &self.weight_hh);
        let inputs = RecurrentInputs { x, w_ih: self.weight_ih.val(), w_hh: self.weight_hh.val(), bias };
        split_states(ops::rnn(inputs, h.val(), self.activation, steps), steps)
    }
}

impl<B: Backend> Rnn<B> {
    /// Creates layers with PyTorch's initial weights.
    pub fn new(
        inputs: usize,
        n: usize,
        activation: RnnActivation,
        options: &RnnOptions,
        init: impl Into<Init<B>>,
    ) -> Self {
        let init = &init.into();
        Self::build(inputs, n, options, init, |inputs, init| RnnCell::new(inputs, n, activation, options.bias, init))
    }
}
