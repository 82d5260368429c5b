//! Fine-tunes a BERT on labelled texts: `cargo run --example finetune_bert -- --model DIR --data reviews.csv --output run`.

use clap::Parser;
use grove_cli::{finetune_bert::Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&Options::parse())
}
