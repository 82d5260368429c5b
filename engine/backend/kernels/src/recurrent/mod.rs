//! Recurrent layers over packed sequences: each layer is one call, forward or backward.

mod gru;
mod gru_backward;
mod lstm;
mod product;
mod rnn;
mod steps;

pub use gru::{GruReset, gru};
pub use gru_backward::gru_backward;
pub use lstm::{lstm, lstm_backward};
pub use rnn::{RnnActivation, rnn, rnn_backward};
pub use steps::Steps;
