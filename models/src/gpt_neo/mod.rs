//! GPT-Neo: EleutherAI's models after GPT-3, in which every other block attends to a window only.

mod config;
mod model;
mod names;

pub use config::{AttentionKind, GptNeoConfig};
pub use model::{Attention, Block, GptNeo, Mlp};
pub use names::published_names;
