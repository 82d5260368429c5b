//! Fine-tunes an image classifier: `cargo run --example finetune_vision -- --model DIR --data images --output run`.

use clap::Parser;
use grove_cli::{finetune_vision::Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&Options::parse())
}
