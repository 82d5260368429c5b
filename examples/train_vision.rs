//! Trains an image classifier from scratch: `cargo run --example train_vision -- --arch vit --data images --output
//! run`.

use clap::Parser;
use grove_cli::{program, train_vision::Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&Options::parse())
}
