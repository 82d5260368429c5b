//! Generates text with GPT-Neo: `cargo run --example gpt_neo -- --model EleutherAI/gpt-neo-125m --prompt "The letter
//! was"`.

use clap::Parser;
use grove::models::family;
use grove_cli::{
    arguments::parse_options,
    generation::decoder::{DecoderArgs, Run},
    program,
};
use std::process::ExitCode;

/// Generates text with GPT-Neo, in any published size (gpt-neo-125m, gpt-neo-1.3B, gpt-neo-2.7B).
#[derive(Parser, Debug)]
#[command(name = "gpt_neo", version, mut_arg("dtype", |arg| arg.default_value("auto")))]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,
}

fn main() -> ExitCode {
    let Options { decoder } = parse_options::<Options>();
    program::main(&Run { options: &decoder, chat: None, file: None, family: family::GptNeo })
}
