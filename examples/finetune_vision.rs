//! Fine-tunes an image classifier: `cargo run --example finetune_vision -- --model DIR --data images --output run`.

use grove_cli::{arguments::parse_options, finetune_vision::Options, program};
use std::process::ExitCode;

fn main() -> ExitCode {
    program::main(&parse_options::<Options>())
}
