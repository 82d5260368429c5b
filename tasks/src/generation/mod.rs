//! Text generation for all causal language models.
//!
//! Device backends sample on the device; only token ids are copied to the host. [`Sampling`] describes when a token can
//! differ from one that is sampled on the host.

mod batch;
mod decoder;
mod device_sampler;
mod gguf_sampling;
mod jitted;
mod options;
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
mod traits;

pub use jitted::JittedLm;
pub use options::{Finish, GenerateOptions, Generated};
pub use published::document_end;
pub use rules::TokenRules;
pub use run::{check_prompt, generate, generate_many};
pub use sampler::Sampling;
pub use score::{Score, score, score_text};
pub use session::{DecodeSession, generate_with_cache};
pub use speculative::{Drafted, generate_with_draft};
pub use text::{TextStream, complete_text};
pub use timing::{Timing, timed};
pub use traits::{AutoGenerate, Generate, JitGenerate};
