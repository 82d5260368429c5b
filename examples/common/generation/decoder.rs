//! The program of every decoder that is a transformer: GPT-2, GPT-Neo, LLaMA.

use clap::Args;
use grove::{
    models::{ModelError, generation::Rewind},
    prelude::*,
    tensor::DType,
    weights::Wanted,
};
use std::path::Path;

use super::{
    DraftArgs, GenerationArgs,
    chat::{ChatArgs, chat},
    print_summary, run_with_draft,
};
use crate::common::{DeviceArgs, Exit, failure, resolve};

/// Options of a program that generates text.
#[derive(Args, Debug)]
pub struct DecoderArgs {
    /// Directory, weights file, or hub id (as `user/model@revision`). Without it, the small model that ships with grove
    #[arg(long)]
    pub model: Option<String>,

    #[command(flatten)]
    pub device: DeviceArgs,

    #[command(flatten)]
    pub generation: GenerationArgs,

    #[command(flatten)]
    pub draft: DraftArgs,

    /// Do not generate: print the table of parameters, and the memory they need. No weights are read; a published size's
    /// name will do as the model
    #[arg(long, conflicts_with = "score")]
    pub summary: bool,
}

/// A family of models.
pub trait Family: Send {
    /// On a backend.
    type Model<B: Backend>: Rewind<B> + Tree<B>;
    /// The model where nothing else is given: a small one that grove trained itself.
    const SHIPS: &'static str;
    /// A hub id of a published one.
    const PUBLISHED: &'static str;

    /// The model of a published size without weights.
    fn preset<B: Backend>(name: &str) -> Result<Self::Model<B>, ModelError>;

    /// The model of a configuration without weights.
    fn configured<B: Backend>(file: &Path) -> Result<Self::Model<B>, ModelError>;

    /// The model at a path without weights, with the type of numbers that each would have.
    fn skeleton<B: Backend>(path: &Path, dtype: Option<DType>) -> Result<Self::Model<B>, ModelError>;

    /// The model.
    fn load<B: Backend>(path: &Path, device: &B::Device, dtype: Option<DType>) -> Result<Self::Model<B>, ModelError>;

    /// Logits of each position, `[b, t, vocab_size]`.
    fn logits<B: Backend>(model: &Self::Model<B>, ids: Tensor<B, 2, Int>) -> Tensor<B, 3>;

    /// Number of parameters, also where they lie in quantised blocks.
    fn parameters<B: Backend>(model: &Self::Model<B>) -> usize {
        tree::count_params(model)
    }

    /// Bytes that the cache of this many positions takes.
    fn cache_bytes<B: Backend>(model: &Self::Model<B>, positions: usize) -> usize;
}

/// The program, for whichever backend was chosen.
pub struct Run<'a, F> {
    pub options: &'a DecoderArgs,
    /// Options of a conversation, where the program has them.
    pub chat: Option<&'a ChatArgs>,
    pub family: F,
}

impl<F: Family> Program for Run<'_, F> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let DecoderArgs { model, device: device_args, generation, draft, summary } = self.options;
        let dtype = device_args.dtype.wanted();
        let resolve = |wanted: &Wanted| resolve(model.as_deref(), F::SHIPS, wanted);
        if *summary {
            let elsewhere = model.as_deref().filter(|model| !Path::new(model).exists());
            let skeleton = match elsewhere.map(F::preset::<B>) {
                Some(Ok(skeleton)) => skeleton,
                // Of a model on the hub its configuration is enough.
                Some(Err(_)) => F::configured::<B>(&resolve(&Wanted::files(["config.json"]))?).map_err(failure)?,
                None => F::skeleton::<B>(&resolve(&Wanted::model())?, dtype).map_err(failure)?,
            };
            let positions = skeleton.context().unwrap_or(generation.max_new_tokens);
            let text = Some((positions, F::cache_bytes(&skeleton, positions)));
            return print_summary(generation, &skeleton, F::parameters(&skeleton), text);
        }
        let path = resolve(&Wanted::model())?;
        let load = |path: &Path| -> Result<F::Model<B>, Exit> {
            let skeleton = F::skeleton::<B>(path, dtype).map_err(failure)?;
            let positions = generation.max_new_tokens.min(skeleton.context().unwrap_or(usize::MAX));
            crate::common::memory::fits(device_args, &skeleton, F::cache_bytes(&skeleton, positions))?;
            F::load(path, &device, dtype).map_err(failure)
        };
        if let Some(chat_args) = self.chat.filter(|chat| chat.chat) {
            return chat(generation, chat_args, &path, load);
        }
        run_with_draft(generation, draft, &path, load, F::logits)?;
        if model.is_none() && !generation.score && !generation.json {
            eprintln!("[this was grove's own small model; for a published one: --model {}]", F::PUBLISHED);
        }
        Ok(())
    }
}
