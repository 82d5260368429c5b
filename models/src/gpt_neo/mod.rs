//! GPT-Neo: EleutherAI's models after GPT-3, in which every other block attends to a window only.

mod config;
mod decode;
mod model;
mod names;
mod pretrained;

pub use config::{AttentionKind, GptNeoConfig};
pub use model::{Attention, Block, GptNeo, GptNeoState, Mlp};
pub use names::published_names;
