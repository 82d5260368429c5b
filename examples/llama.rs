//! LLaMA, and models of its architecture, continue a text or talk: `cargo run --example llama -- --model HuggingFaceTB/SmolLM2-135M-Instruct --chat`.

mod common;
#[path = "common/generation/mod.rs"]
mod generation;

use clap::Parser;
use grove::{
    models::{Llama, LlamaConfig, ModelError},
    prelude::*,
    tensor::DType,
    weights::Checkpoint,
};
use std::{path::Path, process::ExitCode};

use common::finish;
use generation::{
    chat::ChatArgs,
    decoder::{DecoderArgs, Family, Run},
};

/// Generates text, or talks, with LLaMA 2 and 3, TinyLlama, SmolLM2, Mistral and Qwen2: files of transformers, of Meta, and GGUF.
#[derive(Parser, Debug)]
#[command(name = "llama", version, mut_arg("dtype", |arg| arg.default_value("auto")))]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,

    #[command(flatten)]
    chat: ChatArgs,
}

fn main() -> ExitCode {
    let Options { decoder, chat } = Options::parse();
    finish(|| {
        decoder.generation.check()?;
        decoder.device.spec()?.run(Run { options: &decoder, chat: Some(&chat), family: Models })?
    })
}

struct Models;

impl Family for Models {
    type Model<B: Backend> = Llama<B>;
    const SHIPS: &'static str = "llama-austen";
    const PUBLISHED: &'static str = "HuggingFaceTB/SmolLM2-135M-Instruct --chat";

    fn preset<B: Backend>(name: &str) -> Result<Llama<B>, ModelError> {
        Llama::skeleton(&LlamaConfig::preset(name)?)
    }

    fn configured<B: Backend>(file: &Path) -> Result<Llama<B>, ModelError> {
        Llama::skeleton(&LlamaConfig::from_file(file)?)
    }

    fn skeleton<B: Backend>(path: &Path, dtype: Option<DType>) -> Result<Llama<B>, ModelError> {
        let checkpoint = Checkpoint::open(path)?;
        Llama::skeleton_for(&checkpoint, &LlamaConfig::of(path, &checkpoint)?, dtype)
    }

    fn load<B: Backend>(path: &Path, device: &B::Device, dtype: Option<DType>) -> Result<Llama<B>, ModelError> {
        Ok(Llama::from_path(path, device, dtype)?.0)
    }

    fn logits<B: Backend>(model: &Llama<B>, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        model.forward(ids)
    }

    /// The leaves of a quantised model are bytes; its configuration tells how many values they stand for.
    fn parameters<B: Backend>(model: &Llama<B>) -> usize {
        Llama::<B>::skeleton(&model.config)
            .map_or_else(|_| tree::count_params(model), |dense| tree::count_params(&dense))
    }

    fn cache_bytes<B: Backend>(model: &Llama<B>, positions: usize) -> usize {
        model.cache_bytes(positions)
    }
}
