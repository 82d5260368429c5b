//! Runs BERT on texts: `cargo run --example bert -- --task embed --model ./all-MiniLM-L6-v2 "A sentence"`.

use clap::Parser;
use grove_cli::{bert::Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&Options::parse())
}
