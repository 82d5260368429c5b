//! Trains an image classifier from scratch: `cargo run --example train_vision -- --arch vit --data images --output
//! run`.

use grove_cli::{arguments::parse_options, program, train_vision::Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}
