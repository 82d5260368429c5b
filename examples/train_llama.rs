//! Trains a LLaMA on text: `cargo run --example train_llama -- --data book.txt --output run`.

use clap::Parser;
use grove_cli::{language::LlamaOptions, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&LlamaOptions::parse())
}
