//! GPT-Neo continues a text: `cargo run --example gpt_neo -- --model EleutherAI/gpt-neo-125m --prompt "The letter was"`.

mod common;
#[path = "common/generation/mod.rs"]
mod generation;

use clap::Parser;
use grove::{
    models::{GptNeo, GptNeoConfig, ModelError},
    prelude::*,
    tensor::DType,
    weights::Checkpoint,
};
use std::{path::Path, process::ExitCode};

use common::finish;
use generation::decoder::{DecoderArgs, Family, Run};

/// Generates text with GPT-Neo, in any published size (gpt-neo-125m, gpt-neo-1.3B, gpt-neo-2.7B).
#[derive(Parser, Debug)]
#[command(name = "gpt_neo", version, mut_arg("dtype", |arg| arg.default_value("auto")))]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,
}

fn main() -> ExitCode {
    let Options { decoder } = Options::parse();
    finish(|| {
        decoder.generation.check()?;
        decoder.device.spec()?.run(Run { options: &decoder, chat: None, family: Models })?
    })
}

struct Models;

impl Family for Models {
    type Model<B: Backend> = GptNeo<B>;
    const SHIPS: &'static str = "gpt-neo-austen";
    const PUBLISHED: &'static str = "EleutherAI/gpt-neo-125m";

    fn preset<B: Backend>(name: &str) -> Result<GptNeo<B>, ModelError> {
        GptNeo::skeleton(&GptNeoConfig::preset(name)?)
    }

    fn configured<B: Backend>(file: &Path) -> Result<GptNeo<B>, ModelError> {
        GptNeo::skeleton(&GptNeoConfig::from_file(file)?)
    }

    fn skeleton<B: Backend>(path: &Path, dtype: Option<DType>) -> Result<GptNeo<B>, ModelError> {
        GptNeo::skeleton_for(&Checkpoint::open(path)?, &GptNeoConfig::beside(path)?, dtype)
    }

    fn load<B: Backend>(path: &Path, device: &B::Device, dtype: Option<DType>) -> Result<GptNeo<B>, ModelError> {
        Ok(GptNeo::from_path(path, device, dtype)?.0)
    }

    fn logits<B: Backend>(model: &GptNeo<B>, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        model.forward(ids)
    }

    fn cache_bytes<B: Backend>(model: &GptNeo<B>, positions: usize) -> usize {
        model.cache_bytes(positions)
    }
}
