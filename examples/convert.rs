//! Converts a checkpoint to safetensors: `cargo run --example convert -- model.gguf converted --dtype f16`.

use clap::Parser;
use grove::prelude::*;
use grove_cli::{
    convert::Options,
    program::{Command, finish_run},
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    // Conversion only casts dtypes, so the CPU suffices.
    finish_run(|| options.run::<Flex>(&Default::default()))
}
