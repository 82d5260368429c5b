//! Trains a GPT-2 on text: `cargo run --example train_gpt2 -- --data book.txt --output run`.

use grove_cli::{arguments::parse_options, language::Gpt2Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<Gpt2Options>())
}
