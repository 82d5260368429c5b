use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    Embedding,
    rnn::{Gru, Lstm, PackedSequence, Rnn, RnnActivation, RnnOptions},
};
use grove_tree::{Array, Init, Key, Tree};
use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

use crate::error::ModelError;

/// Kind of recurrent cell.
///
/// ```
/// use grove_models::RnnKind;
/// let kind: RnnKind = "gru".parse()?;
/// assert_eq!((kind, kind.to_string().as_str()), (RnnKind::Gru, "gru"));
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RnnKind {
    /// `lstm`: long short-term memory.
    #[default]
    Lstm,
    /// `gru`: gated recurrent unit.
    Gru,
    /// `rnn_tanh`: Elman cell with tanh.
    RnnTanh,
    /// `rnn_relu`: Elman cell with ReLU.
    RnnRelu,
}

impl RnnKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Lstm, Self::Gru, Self::RnnTanh, Self::RnnRelu];
}

impl fmt::Display for RnnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lstm => "lstm",
            Self::Gru => "gru",
            Self::RnnTanh => "rnn_tanh",
            Self::RnnRelu => "rnn_relu",
        })
    }
}

impl FromStr for RnnKind {
    type Err = ModelError;

    fn from_str(name: &str) -> Result<Self, ModelError> {
        let unknown = || ModelError::Option {
            option: "cell",
            value: format!("'{name}'"),
            range: "lstm, gru, rnn_tanh or rnn_relu",
        };
        Self::ALL.into_iter().find(|kind| kind.to_string() == name).ok_or_else(unknown)
    }
}

/// Recurrent layers whose cell is chosen at run time. As a tree it is the layers themselves: paths are
/// `layers.0.forward.weight_ih` and so on.
#[derive(Tree, Clone, Debug)]
#[tree(transparent)]
pub enum RnnLayers<B: Backend> {
    /// Elman layers.
    Rnn(Rnn<B>),
    /// GRU layers.
    Gru(Gru<B>),
    /// LSTM layers.
    Lstm(Lstm<B>),
}

/// State of recurrent layers.
#[derive(Tree, Clone, Debug)]
pub struct RnnState<B: Backend> {
    /// Hidden states, `[layers * directions, b, n]` in PyTorch's order.
    pub h: Array<B, 3>,
    /// Cell states of an LSTM, in the same shape; `None` for other cells.
    pub c: Option<Array<B, 3>>,
}

impl<B: Backend> RnnLayers<B> {
    /// Creates layers with PyTorch's initialisation.
    pub fn new(kind: RnnKind, inputs: usize, n: usize, options: &RnnOptions, init: &Init<B>) -> Self {
        let plain = |activation| Self::Rnn(Rnn::new(inputs, n, activation, options, init));
        match kind {
            RnnKind::Lstm => Self::Lstm(Lstm::new(inputs, n, options, init)),
            RnnKind::Gru => Self::Gru(Gru::new(inputs, n, options, init)),
            RnnKind::RnnTanh => plain(RnnActivation::Tanh),
            RnnKind::RnnRelu => plain(RnnActivation::Relu),
        }
    }

    /// Returns the options of the layers.
    pub(super) fn options_mut(&mut self) -> &mut RnnOptions {
        match self {
            Self::Rnn(layers) => &mut layers.options,
            Self::Gru(layers) => &mut layers.options,
            Self::Lstm(layers) => &mut layers.options,
        }
    }

    /// Runs the layers over a batch of sequences of equal length, starting from `state` or from zeros. Dropout is
    /// applied between the layers if a `key` is given.
    ///
    /// # Shapes
    /// - x `[t, b, inputs]`, or `[b, t, inputs]` with `batch_first`; t and b at least 1
    /// - output `[t, b, directions * n]`, or `[b, t, directions * n]` with `batch_first`
    ///
    /// # Panics
    /// If an LSTM is given a state without cell states.
    #[track_caller]
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        state: Option<RnnState<B>>,
        key: Option<Key>,
    ) -> (Tensor<B, 3>, RnnState<B>) {
        let state = self.checked(state);
        match self {
            Self::Rnn(layers) => one(layers.forward(x, state.map(hidden), key)),
            Self::Gru(layers) => one(layers.forward(x, state.map(hidden), key)),
            Self::Lstm(layers) => two(layers.forward(x, state.and_then(both), key)),
        }
    }

    /// Runs the layers over a packed batch.
    ///
    /// # Shapes
    /// - x `[rows, inputs]`, packed
    /// - states before and after: `[layers * directions, b, n]`, in the order of the sequences before packing
    /// - output `[rows, directions * n]`, packed in the same way
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    #[track_caller]
    pub fn forward_packed(
        &self,
        x: &PackedSequence<Array<B, 2>>,
        state: Option<RnnState<B>>,
        key: Option<Key>,
    ) -> (PackedSequence<Array<B, 2>>, RnnState<B>) {
        let state = self.checked(state);
        match self {
            Self::Rnn(layers) => one(layers.forward_packed(x, state.map(hidden), key)),
            Self::Gru(layers) => one(layers.forward_packed(x, state.map(hidden), key)),
            Self::Lstm(layers) => two(layers.forward_packed(x, state.and_then(both), key)),
        }
    }

    fn checked(&self, state: Option<RnnState<B>>) -> Option<RnnState<B>> {
        if let (Self::Lstm(_), Some(state)) = (self, &state) {
            assert!(state.c.is_some(), "an LSTM's state has cell states; this one comes from a network of other cells");
        }
        state
    }
}

fn hidden<B: Backend>(state: RnnState<B>) -> [Array<B, 3>; 1] {
    [state.h]
}

fn both<B: Backend>(state: RnnState<B>) -> Option<[Array<B, 3>; 2]> {
    Some([state.h, state.c?])
}

fn one<B: Backend, Y>((y, [h]): (Y, [Array<B, 3>; 1])) -> (Y, RnnState<B>) {
    (y, RnnState { h, c: None })
}

fn two<B: Backend, Y>((y, [h, c]): (Y, [Array<B, 3>; 2])) -> (Y, RnnState<B>) {
    (y, RnnState { h, c: Some(c) })
}

/// Embeds packed tokens: `[rows]` to `[rows, size]`.
pub(super) fn embed<B: Backend>(embedding: &Embedding<B>, ids: Tensor<B, 1, Int>) -> Tensor<B, 2> {
    embedding.forward(ids.unsqueeze()).squeeze_dim(0)
}
