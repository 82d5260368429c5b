use burn::tensor::Tensor;
use grove_backend::{Backend, Steps};
use grove_tree::{Array, Init, Tree};

/// State of a recurrent network: the hidden state, followed by the cell state for an LSTM. Each is `[b, n]` for a cell, and
/// `[layers * directions, b, n]` in PyTorch's order for layers (`D = 3`).
pub type State<B, const S: usize, const D: usize = 2> = [Array<B, D>; S];

/// Recurrence of one layer in one direction, with `S` states.
pub trait Cell<B: Backend, const S: usize>: Tree<B> {
    /// Sizes of the states. The first is the output size.
    fn state_sizes(&self) -> [usize; S];

    /// Runs over a packed batch. All steps are one backend operation.
    ///
    /// # Shapes
    /// - x `[rows, inputs]`
    /// - state before the first step, and after each sequence's last step, each `[b, n]`
    /// - output `[rows, n]`
    fn run(&self, x: Tensor<B, 2>, steps: &Steps, state: State<B, S>) -> (Tensor<B, 2>, State<B, S>);

    /// Runs one step of `b` sequences, `(state, x) -> (state, y)`, the signature of `scan`'s argument.
    ///
    /// # Shapes
    /// - state, each `[b, n]`
    /// - x `[b, inputs]`
    /// - output `[b, n]`
    fn step(&self, state: State<B, S>, x: Array<B, 2>) -> (State<B, S>, Array<B, 2>) {
        let x = x.val();
        let (y, state) = self.run(x.clone(), &Steps::new([x.dims()[0]], false), state);
        (state, Array::new(y))
    }

    /// Returns zero states for `b` sequences, with the dtype and device of `like`.
    fn zeros(&self, b: usize, like: &Tensor<B, 2>) -> State<B, S> {
        self.state_sizes().map(|n| Array::new(Tensor::zeros([b, n], (&like.device(), like.dtype()))))
    }
}

/// Weights that all cells have, under PyTorch's names and with PyTorch's initial values: uniform in `±1 / sqrt(hidden)`.
pub(super) struct Weights<B: Backend> {
    pub w_ih: Array<B, 2>,
    pub w_hh: Array<B, 2>,
    pub b_ih: Option<Array<B, 1>>,
    pub b_hh: Option<Array<B, 1>>,
}

impl<B: Backend> Weights<B> {
    /// `wide` is the number of gates times the hidden size. `state` is the size of the hidden state that is fed back.
    pub fn new([inputs, hidden, state, wide]: [usize; 4], bias: bool, init: &Init<B>) -> Self {
        let bound = 1.0 / (hidden as f32).sqrt();
        let vector = |name: &str| bias.then(|| init.named(name).uniform([wide], -bound, bound));
        Self {
            w_ih: init.named("weight_ih").uniform([wide, inputs], -bound, bound),
            w_hh: init.named("weight_hh").uniform([wide, state], -bound, bound),
            b_ih: vector("bias_ih"),
            b_hh: vector("bias_hh"),
        }
    }
}

/// The bias, or zeros if it is `None`.
#[track_caller]
pub(super) fn bias_or_zeros<B: Backend>(bias: &Option<Array<B, 1>>, weight: &Array<B, 2>) -> Tensor<B, 1> {
    match bias {
        Some(bias) => bias.val(),
        None => {
            let weight = weight.val();
            Tensor::zeros([weight.dims()[0]], (&weight.device(), weight.dtype()))
        }
    }
}

/// Splits an operation's output into the packed rows and the final states, which follow the rows.
#[track_caller]
pub(super) fn split_states<B: Backend, const S: usize>(
    output: Tensor<B, 2>,
    steps: &Steps,
) -> (Tensor<B, 2>, State<B, S>) {
    let (rows, b) = (steps.rows(), steps.batch());
    let states = std::array::from_fn(|i| Array::new(output.clone().narrow(0, rows + i * b, b)));
    (output.narrow(0, 0, rows), states)
}
