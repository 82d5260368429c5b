//! Text for language models: tokenizers from the files of published models, and chat templates.
//!
//! Both match transformers. A [`Tokenizer`] is opened from the files of a model, whichever they are, and encodes texts,
//! pairs of texts and windows of long texts; [`chat_template()`] is the chat template of these files. [`chat`] renders a
//! conversation to a model's prompt.
//!
//! Below the [`Tokenizer`], [`tokenizer_json`] reads a `tokenizer.json`, [`sentencepiece`] the `tokenizer.model` of older
//! LLaMAs and similar models, and [`ggml`] the vocabulary of a GGUF file; each returns a [`tokenizers::Tokenizer`]. Files
//! and templates are untrusted: invalid or malicious ones are errors. [`printable`] removes terminal control sequences
//! from their text.
//!
//! ```
//! use grove_text::sentencepiece;
//!
//! let tokenizer = sentencepiece::from_file("tests/fixtures/models/llama.model")?;
//! let tokens = tokenizer.encode("The river 🌲", true).map_err(|error| error.to_string())?;
//! assert_eq!(tokens.get_tokens(), ["<s>", "▁The", "▁river", "▁", "<0xF0>", "<0x9F>", "<0x8C>", "<0xB2>"]);
//! assert_eq!(tokenizer.decode(tokens.get_ids(), true).map_err(|error| error.to_string())?, "The river 🌲");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![warn(missing_docs)]

pub mod chat;
pub mod ggml;
pub use grove_files::printable;
pub mod sentencepiece;
pub mod tokenizer_json;

mod error;
mod files;
mod merges;
mod panics;
mod patterns;
mod pieces;
mod special;
mod tokenizer;

pub use error::{Result, TextError};
pub use panics::catch_panic;
pub use special::{add as add_tokens, special_tokens, surround, tokenizer_settings};
pub use tokenizer::{EncodedText, TextIds, Tokenizer, Truncation, chat_template, max_length_key};
