//! Text generation, shared by every decoder.
//!
//! Backends that compute on a device of their own draw the tokens there, and the host reads no more than these. See
//! [`Sampling`] for when a token can be another than where the host draws.

mod ahead;
mod published;
mod reading;
mod run;
mod sampler;
mod score;
mod speculative;
mod text;

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::Tree;

pub use reading::{Reading, Rewind, generate_on};
pub use run::{Finish, GenerateOptions, Generated, check_prompt, generate};
pub use sampler::Sampling;
pub use score::{Score, score, score_text};
pub use speculative::{Drafted, generate_with_draft};
pub use text::TextStream;

/// A model that computes the next token's logits and carries a state from position to position: a cache of keys and
/// values, or the state of a recurrent network.
pub trait Decoder<B: Backend>: Tree<B> {
    /// The state that is carried from position to position.
    type State: Tree<B>;

    /// Returns the state before the first position. Memory for `room` positions is allocated at once; 0 if their number
    /// is unknown.
    fn start(&self, room: usize) -> Self::State;

    /// Reads the next positions. Returns the logits after the last of them, and the new state.
    ///
    /// `padding[row]` positions at the beginning of a row are padding, counted from the very first position; an empty
    /// slice means none anywhere.
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at least 1
    /// - output `[b, vocab_size]`
    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], state: Self::State) -> (Tensor<B, 2>, Self::State);

    /// Number of tokens.
    fn vocab_size(&self) -> usize;

    /// The most positions that the model can see, if there is a limit.
    fn context(&self) -> Option<usize>;

    /// The model's device.
    fn device(&self) -> B::Device;

    /// Tokens that end a text, as the model's `config.json` names them.
    fn end_tokens(&self) -> Vec<u32>;
}

/// Positions of the tokens after `seen` others, in rows that begin with padding: one row for all where none does, else one
/// for each. Padding itself stands at position 0.
pub(crate) fn row_positions(seen: usize, t: usize, padding: &[usize]) -> (Vec<usize>, usize) {
    let row = |pad: usize| (seen..seen + t).map(move |position| position.saturating_sub(pad));
    match padding.iter().all(|&pad| pad == 0) {
        true => (row(0).collect(), 1),
        false => (padding.iter().flat_map(|&pad| row(pad)).collect(), padding.len()),
    }
}

/// Positions of `t` tokens that follow `seen` others, as a decoder's table of positions is indexed.
///
/// `padding[row]` positions at the beginning of a row are padding, which stands at position 0; an empty slice means none
/// anywhere.
///
/// # Shapes
/// - output `[b, t]`, or `[1, t]` where no row has padding
pub fn position_ids<B: Backend>(seen: usize, t: usize, padding: &[usize], device: &B::Device) -> Tensor<B, 2, Int> {
    let (positions, rows) = row_positions(seen, t, padding);
    let positions: Vec<i64> = positions.into_iter().map(|position| position as i64).collect();
    Tensor::from_data(TensorData::new(positions, [rows, t]), device)
}
