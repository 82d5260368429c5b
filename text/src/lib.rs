//! Text for language models: tokenizers from files that have no `tokenizer.json`, and chat templates.
#![warn(missing_docs)]

pub mod ggml;
pub mod sentencepiece;

mod error;
mod files;
mod merges;
mod pieces;
mod special;

pub use error::{Result, TextError};
