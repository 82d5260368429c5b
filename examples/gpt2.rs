//! GPT-2 continues a text: `cargo run --example gpt2 -- --prompt "The letter was"`.

mod common;
#[path = "common/generation/mod.rs"]
mod generation;

use clap::Parser;
use grove::{
    models::{Gpt2, Gpt2Config, ModelError},
    prelude::*,
    tensor::DType,
    tree::cast,
};
use std::{path::Path, process::ExitCode};

use common::finish;
use generation::decoder::{DecoderArgs, Family, Run};

/// Generates text with GPT-2, in any published size (gpt2, gpt2-medium, gpt2-large, gpt2-xl).
#[derive(Parser, Debug)]
#[command(name = "gpt2", version)]
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
    type Model<B: Backend> = Gpt2<B>;
    const SHIPS: &'static str = "gpt2-austen";
    const PUBLISHED: &'static str = "openai-community/gpt2";

    fn preset<B: Backend>(name: &str) -> Result<Gpt2<B>, ModelError> {
        Gpt2::skeleton(&Gpt2Config::preset(name)?)
    }

    fn configured<B: Backend>(file: &Path) -> Result<Gpt2<B>, ModelError> {
        Gpt2::skeleton(&Gpt2Config::from_file(file)?)
    }

    fn skeleton<B: Backend>(path: &Path, dtype: Option<DType>) -> Result<Gpt2<B>, ModelError> {
        let skeleton = Gpt2::skeleton(&Gpt2Config::beside(path)?)?;
        Ok(cast(skeleton, dtype.unwrap_or(DType::F32).into()))
    }

    fn load<B: Backend>(path: &Path, device: &B::Device, dtype: Option<DType>) -> Result<Gpt2<B>, ModelError> {
        Ok(Gpt2::from_path(path, device, dtype)?.0)
    }

    fn logits<B: Backend>(model: &Gpt2<B>, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        model.forward(ids)
    }

    fn cache_bytes<B: Backend>(model: &Gpt2<B>, positions: usize) -> usize {
        model.cache_bytes(positions)
    }
}
