//! Converts a checkpoint to safetensors: `cargo run --example convert -- model.gguf converted --dtype f16`.

use grove::prelude::*;
use grove_cli::{
    arguments::parse_options,
    convert::Options,
    program::{Command, finish_run},
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = parse_options::<Options>();
    // Conversion only casts dtypes, so the CPU suffices.
    finish_run(|| options.run::<Flex>(&Default::default()))
}
