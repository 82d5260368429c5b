//! Trains a BERT on text: `cargo run --example train_bert -- --data book.txt --output run`.

use clap::Parser;
use grove_cli::{program, train_bert::Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&Options::parse())
}
