//! Trains a BERT on text: `cargo run --example train_bert -- --data book.txt --output run`.

use grove_cli::{arguments::parse_options, program, train_bert::Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}
