//! Text generation, shared by every decoder.
//!
//! Backends that compute on a device of their own draw the tokens there, and the host reads no more than these. See
//! [`Sampling`] for when a token can be another than where the host draws.

mod ahead;
mod causal_lm;
mod chat;
mod published;
mod run;
mod sampler;
mod score;
mod session;
mod speculative;
mod text;
mod timing;

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;

pub use causal_lm::{CausalLm, DecodeCache};
pub use chat::{ChatSession, Reply};
pub use published::document_end;
pub use run::{Finish, GenerateOptions, Generated, check_prompt, generate};
pub use sampler::Sampling;
pub use score::{Score, score, score_text};
pub use session::{DecodeSession, generate_with_cache};
pub use speculative::{Drafted, generate_with_draft};
pub use text::{TextStream, complete_text};
pub use timing::{Timing, timed};

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
