//! Generates text with GPT-2: `cargo run --example gpt2 -- --prompt "The letter was"`.

use clap::Parser;
use grove::models::family;
use grove_cli::{
    arguments::parse_options,
    generation::decoder::{DecoderArgs, Run},
    program,
};
use std::process::ExitCode;

/// Generates text with GPT-2, in any published size (gpt2, gpt2-medium, gpt2-large, gpt2-xl).
#[derive(Parser, Debug)]
#[command(name = "gpt2", version)]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,
}

fn main() -> ExitCode {
    let Options { decoder } = parse_options::<Options>();
    program::main(&Run { options: &decoder, chat: None, file: None, family: family::Gpt2 })
}
