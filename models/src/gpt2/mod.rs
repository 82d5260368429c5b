//! GPT-2: "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019).

mod config;
mod model;
mod names;

pub use config::Gpt2Config;
pub use model::{Attention, Block, Gpt2, Mlp, SelfAttention};
pub use names::published_names;
