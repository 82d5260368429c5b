//! Recurrent networks: cells, stacks of layers, and packed batches of sequences of different lengths.
//!
//! [`Rnn`], [`Gru`] and [`Lstm`] compute the same gates as PyTorch's. They run over a padded batch, with or without
//! lengths, or over a [`PackedSequence`], which has no padded steps. In both cases each layer and direction is one backend
//! operation. The cells [`RnnCell`], [`GruCell`] and [`LstmCell`] compute one step, `(state, x) -> (state, y)`, the
//! signature of `grove_transform::scan`'s argument.
//!
//! ```
//! use burn::tensor::Tensor;
//! use grove_layers::rnn::{Lstm, RnnOptions};
//! use grove_tree::{Init, Key};
//! # type B = burn_flex::Flex;
//! # let device = Default::default();
//! let options = RnnOptions { layers: 2, batch_first: true, ..RnnOptions::default() };
//! let lstm = Lstm::<B>::new(3, 5, &options, &Init::new(Key::new(0), &device));
//! let x = Tensor::ones([2, 7, 3], &device);                       // [b, t, inputs]
//! let (y, [h, c]) = lstm.forward(x.clone(), None, None);
//! assert_eq!((y.dims(), h.shape(), c.shape()), ([2, 7, 5], [2, 2, 5], [2, 2, 5]));
//!
//! let (y, _) = lstm.forward_lengths(x, &[4, 7], None, None)?;     // the first sequence ends after four steps
//! assert_eq!(y.slice([0..1, 4..7]).abs().max().into_scalar(), 0.0);
//! # Ok::<(), grove_layers::rnn::PackError>(())
//! ```

mod cell;
mod gru;
mod layers;
mod lstm;
mod options;
mod packed;
mod packing;
mod plain;

pub use cell::{Cell, State};
pub use grove_backend::{GruReset, RnnActivation, Steps};
pub use gru::{Gru, GruCell};
pub use layers::{Directions, Recurrent};
pub use lstm::{Lstm, LstmCell};
pub use options::RnnOptions;
pub use packed::{PackedSequence, pack_padded_sequence, pack_sequence, pad_packed_sequence};
pub use packing::{PackError, Packing};
pub use plain::{Rnn, RnnCell};
