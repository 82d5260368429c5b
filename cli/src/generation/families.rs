//! Families of decoders.

use grove::{
    models::{Gpt2, GptNeo, Llama, ModelError},
    prelude::*,
    tensor::DType,
    tree::cast,
    weights::Checkpoint,
};
use std::path::Path;

use super::decoder::Family;

/// GPT-2.
pub struct Gpt2s;

impl Family for Gpt2s {
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

/// GPT-Neo.
pub struct GptNeos;

impl Family for GptNeos {
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

/// LLaMA, and models of its architecture.
pub struct Llamas;

impl Family for Llamas {
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
