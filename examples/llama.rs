//! Generates text or chats with LLaMA and models of its architecture: `cargo run --example llama -- --model
//! HuggingFaceTB/SmolLM2-135M-Instruct --chat`.

use clap::Parser;
use grove::models::family;
use grove_cli::{
    arguments::parse_options,
    generation::{
        chat::ChatArgs,
        decoder::{DecoderArgs, Run},
    },
    program,
};
use std::process::ExitCode;

/// Generates text or chats with LLaMA 2 and 3, TinyLlama, SmolLM2, Mistral, Qwen2 and Qwen3, from files of
/// transformers, of Meta, or GGUF.
#[derive(Parser, Debug)]
#[command(name = "llama", version, mut_arg("dtype", |arg| arg.default_value("auto")))]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,

    #[command(flatten)]
    chat: ChatArgs,
}

fn main() -> ExitCode {
    let Options { decoder, chat } = parse_options::<Options>();
    program::main(&Run { options: &decoder, chat: Some(&chat), file: None, family: family::Llama })
}
