use burn::tensor::{
    Tensor,
    activation::{sigmoid, tanh},
};
use grove_backend::{
    Backend, Steps, matmul,
    ops::{self, RecurrentInputs},
};
use grove_tree::{Array, Init, Tree};

use super::{
    Cell, Recurrent, RnnOptions, State,
    cell::{Weights, bias_or_zeros, split_states},
};

/// Layers of long short-term memory, like `torch.nn.LSTM`.
pub type Lstm<B> = Recurrent<LstmCell<B>>;

/// Long short-term memory (Hochreiter and Schmidhuber, 1997), like `torch.nn.LSTMCell`: gates in the order input `i`,
/// forget `f`, cell `g`, output `o`; `c' = f c + i g` and `h' = o tanh(c')`. With a projection, `h' = W_hr (o tanh(c'))`
/// (Sak et al., 2014).
#[derive(Tree, Clone, Debug)]
pub struct LstmCell<B: Backend> {
    /// Input weights of all gates, `[4 n, inputs]`.
    pub weight_ih: Array<B, 2>,
    /// State weights of all gates, `[4 n, n]`, or `[4 n, p]` with a projection.
    pub weight_hh: Array<B, 2>,
    /// Input bias, `[4 n]`; `None` for no biases.
    pub bias_ih: Option<Array<B, 1>>,
    /// State bias, `[4 n]`; `None` for no biases.
    pub bias_hh: Option<Array<B, 1>>,
    /// Projection of the hidden state, `[p, n]`; `None` for no projection.
    pub weight_hr: Option<Array<B, 2>>,
}

impl<B: Backend> LstmCell<B> {
    /// Creates a cell with PyTorch's initial weights. `projection` is the size of the projected hidden state.
    pub fn new(inputs: usize, n: usize, projection: Option<usize>, bias: bool, init: impl Into<Init<B>>) -> Self {
        let init = &init.into();
        let state = projection.unwrap_or(n);
        let Weights { w_ih, w_hh, b_ih, b_hh } = Weights::new([inputs, n, state, 4 * n], bias, init);
        let bound = 1.0 / (n as f32).sqrt();
        let weight_hr = projection.map(|p| init.named("weight_hr").uniform([p, n], -bound, bound));
        Self { weight_ih: w_ih, weight_hh: w_hh, bias_ih: b_ih, bias_hh: b_hh, weight_hr }
    }

    fn bias(&self) -> Tensor<B, 1> {
        bias_or_zeros(&self.bias_ih, &self.weight_ih) + bias_or_zeros(&self.bias_hh, &self.weight_hh)
    }

    /// Runs step by step, with the projection in each step.
    #[track_caller]
    fn run_projected(
        &self,
        w_hr: Tensor<B, 2>,
        x: Tensor<B, 2>,
        steps: &Steps,
        [h, c]: State<B, 2>,
    ) -> (Tensor<B, 2>, State<B, 2>) {
        let [p, n] = w_hr.dims();
        let (mut h, mut c) = (h.val(), c.val()); // [b, p], [b, n]
        let b = steps.batch();
        let gates = matmul(x, self.weight_ih.val().transpose()) + self.bias().unsqueeze(); // [rows, 4 n]
        let (w_hh, w_hr) = (self.weight_hh.val().transpose(), w_hr.transpose());
        let mut outputs = vec![];
        for (step, rows) in steps.walk() {
            let active = rows.len();
            let from_state = matmul(h.clone().narrow(0, 0, active), w_hh.clone());
            let gates = gates.clone().narrow(0, rows.start, active) + from_state;
            let gate = |i: usize| gates.clone().narrow(1, i * n, n);
            let (i, f, g, o) = (sigmoid(gate(0)), sigmoid(gate(1)), tanh(gate(2)), sigmoid(gate(3)));
            let cell = f * c.clone().narrow(0, 0, active) + i * g;
            let output = matmul(o * tanh(cell.clone()), w_hr.clone()); // [active, p]
            let ended = |state: Tensor<B, 2>, first: Tensor<B, 2>| match b - active {
                0 => first,
                ended => Tensor::cat(vec![first, state.narrow(0, active, ended)], 0),
            };
            (h, c) = (ended(h, output.clone()), ended(c, cell));
            outputs.push((step, output));
        }
        outputs.sort_by_key(|(step, _)| *step);
        let y = Tensor::cat(outputs.into_iter().map(|(_, output)| output).collect(), 0);
        debug_assert_eq!(y.dims(), [steps.rows(), p]);
        (y, [Array::new(h), Array::new(c)])
    }
}

impl<B: Backend> Cell<B, 2> for LstmCell<B> {
    fn state_sizes(&self) -> [usize; 2] {
        [self.weight_hh.shape()[1], self.weight_hh.shape()[0] / 4]
    }

    #[track_caller]
    fn run(&self, x: Tensor<B, 2>, steps: &Steps, state: State<B, 2>) -> (Tensor<B, 2>, State<B, 2>) {
        if let Some(w_hr) = &self.weight_hr {
            return self.run_projected(w_hr.val(), x, steps, state);
        }
        let inputs = RecurrentInputs { x, w_ih: self.weight_ih.val(), w_hh: self.weight_hh.val(), bias: self.bias() };
        split_states(ops::lstm(inputs, state.map(|state| state.val()), steps), steps)
    }
}

impl<B: Backend> Lstm<B> {
    /// Creates layers with PyTorch's initial weights.
    pub fn new(inputs: usize, n: usize, options: &RnnOptions, init: impl Into<Init<B>>) -> Self {
        let init = &init.into();
        Self::build(inputs, n, options, init, |inputs, init| LstmCell::new(inputs, n, None, options.bias, init))
    }

    /// Creates layers whose hidden states are projected to size `projection`, PyTorch's `proj_size`.
    pub fn projected(
        inputs: usize,
        n: usize,
        projection: usize,
        options: &RnnOptions,
        init: impl Into<Init<B>>,
    ) -> Self {
        let init = &init.into();
        Self::build(inputs, projection, options, init, |inputs, init| {
            LstmCell::new(inputs, n, Some(projection), options.bias, init)
        })
    }
}
