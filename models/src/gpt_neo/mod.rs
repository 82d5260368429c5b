//! GPT-Neo: EleutherAI's replication of GPT-3, in which every other block uses sliding-window attention.
//! The rest of a block is that of GPT-2.

mod config;
mod model;
mod names;

pub use config::{AttentionKind, GptNeoConfig};
pub use model::{Attention, Block, GptNeo};
pub use names::published_names;
