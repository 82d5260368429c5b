//! LLaMA and models with its architecture: TinyLlama, SmolLM2, Mistral, Qwen2.

mod architecture;
mod config;
mod feed_forward;
mod gguf;
mod meta;
mod model;
mod names;
mod presets;
mod pretrained;
mod rope;

pub use crate::generation::EndTokens;
pub use architecture::Architecture;
pub use config::LlamaConfig;
pub use feed_forward::Mlp;
pub use model::{Attention, Layer, Llama};
pub use names::published_names;
