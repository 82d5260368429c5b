//! Trains a LLaMA on text: `cargo run --example train_llama -- --data book.txt --output run`.

use grove_cli::{arguments::parse_options, language::LlamaOptions, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<LlamaOptions>())
}
