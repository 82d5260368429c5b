//! Fine-tunes a BERT on labelled texts: `cargo run --example finetune_bert -- --model DIR --data reviews.csv --output run`.

use grove_cli::{arguments::parse_options, finetune_bert::Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}
