//! All tests of this crate in one binary, which is linked once.

#[path = "../common/mod.rs"]
mod common;

mod chat;
mod chat_engine;
mod chat_harm;
mod hostile;
mod patterns;
mod tokenizer;
mod tokenizer_forms;
mod tokenizer_json;
mod tokenizer_saving;
mod tokens;
