//! LLaMA and models with its architecture: TinyLlama, SmolLM2, Mistral, Qwen2 and Qwen3.

mod architecture;
mod config;
mod gguf;
mod gguf_rope;
mod meta;
mod model;
mod names;
mod presets;
mod rope;

pub use architecture::Architecture;
pub use config::LlamaConfig;
pub use model::{Attention, Layer, Llama, Mlp};
pub use names::published_names;
