use burn::tensor::Tensor;
use grove_backend::{
    Backend, GruReset, Steps,
    ops::{self, RecurrentInputs},
};
use grove_tree::{Array, Init, Tree};

use super::{
    Cell, Recurrent, RnnOptions, State,
    cell::{Weights, bias_or_zeros, split_states},
};

/// Layers of gated recurrent units, like `torch.nn.GRU`.
pub type Gru<B> = Recurrent<GruCell<B>>;

/// A gated recurrent unit (Cho et al., 2014), like `torch.nn.GRUCell`: gates in the order reset `r`, update `z`, new `n`;
/// `h' = (1 - z) n + z h` with `n = tanh(W_in x + b_in + r (W_hn h + b_hn))`. [`GruReset`] selects this variant or the
/// paper's.
#[derive(Tree, Clone, Debug)]
pub struct GruCell<B: Backend> {
    /// Input weights of all gates, `[3 n, inputs]`.
    pub weight_ih: Array<B, 2>,
    /// State weights of all gates, `[3 n, n]`.
    pub weight_hh: Array<B, 2>,
    /// Input bias, `[3 n]`; `None` for no biases.
    pub bias_ih: Option<Array<B, 1>>,
    /// State bias, `[3 n]`; `None` for no biases.
    pub bias_hh: Option<Array<B, 1>>,
    /// Position of the reset gate: after or before the product with the state weights.
    #[tree(static)]
    pub reset: GruReset,
}

impl<B: Backend> GruCell<B> {
    /// Creates a cell with PyTorch's initial weights.
    pub fn new(inputs: usize, n: usize, reset: GruReset, bias: bool, init: impl Into<Init<B>>) -> Self {
        let init = &init.into();
        let Weights { w_ih, w_hh, b_ih, b_hh } = Weights::new([inputs, n, n, 3 * n], bias, init);
        Self { weight_ih: w_ih, weight_hh: w_hh, bias_ih: b_ih, bias_hh: b_hh, reset }
    }
}

impl<B: Backend> Cell<B, 1> for GruCell<B> {
    fn state_sizes(&self) -> [usize; 1] {
        [self.weight_hh.shape()[1]]
    }

    #[track_caller]
    fn run(&self, x: Tensor<B, 2>, steps: &Steps, [h]: State<B, 1>) -> (Tensor<B, 2>, State<B, 1>) {
        let [n] = self.state_sizes();
        let (b_ih, b_hh) =
            (bias_or_zeros(&self.bias_ih, &self.weight_ih), bias_or_zeros(&self.bias_hh, &self.weight_hh));
        // The reset gate multiplies the new gate's state bias, so that bias stays separate. The others are added to the
        // input biases.
        let r_z = b_ih.clone().narrow(0, 0, 2 * n) + b_hh.clone().narrow(0, 0, 2 * n);
        let bias = Tensor::cat(vec![r_z, b_ih.narrow(0, 2 * n, n), b_hh.narrow(0, 2 * n, n)], 0);
        let inputs = RecurrentInputs { x, w_ih: self.weight_ih.val(), w_hh: self.weight_hh.val(), bias };
        split_states(ops::gru(inputs, h.val(), self.reset, steps), steps)
    }
}

impl<B: Backend> Gru<B> {
    /// Creates layers of PyTorch's variant, with PyTorch's initial weights.
    pub fn new(inputs: usize, n: usize, options: &RnnOptions, init: impl Into<Init<B>>) -> Self {
        let init = &init.into();
        Self::with_reset(inputs, n, GruReset::After, options, init)
    }

    /// Creates layers of either variant, with PyTorch's initial weights.
    pub fn with_reset(
        inputs: usize,
        n: usize,
        reset: GruReset,
        options: &RnnOptions,
        init: impl Into<Init<B>>,
    ) -> Self {
        let init = &init.into();
        Self::build(inputs, n, options, init, |inputs, init| GruCell::new(inputs, n, reset, options.bias, init))
    }
}
