//! Text generation, shared by every decoder.
//!
//! Backends that compute on a device of their own draw the tokens there, and the host reads no more than these. See
//! [`Sampling`] for when a token can be another than where the host draws.

mod ahead;
mod causal_lm;
mod chat;
mod decoder;
mod ends;
mod jitted;
mod options;
mod positions;
mod published;
mod rows;
mod rules;
mod run;
mod sampler;
mod score;
mod session;
mod speculative;
mod text;
mod timing;

pub use causal_lm::{CausalLm, DecodeCache};
pub use chat::{ChatSession, Reply};
pub use ends::EndTokens;
pub use jitted::{JittedLm, TraceableLm};
pub use options::{Finish, GenerateOptions, Generated};
pub(crate) use positions::row_positions;
pub use positions::{cached_position_ids, fixed_position_ids, layer_masks, position_ids};
pub use published::document_end;
pub(crate) use published::published_ends;
pub use rules::TokenRules;
pub use run::{check_prompt, generate};
pub use sampler::Sampling;
pub use score::{Score, score, score_text};
pub use session::{DecodeSession, generate_with_cache};
pub use speculative::{Drafted, generate_with_draft};
pub use text::{TextStream, complete_text};
pub use timing::{Timing, timed};
