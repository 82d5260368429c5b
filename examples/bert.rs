//! Runs BERT on texts: `cargo run --example bert -- --task embed --model ./all-MiniLM-L6-v2 "A sentence"`.

use grove_cli::{arguments::parse_options, bert::Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}
