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
use crate::{DeviceArgs, Exit, failure, memory, resolve};

/// Options of a program that generates text.
#[derive(Args, Debug)]
pub struct DecoderArgs {
    /// Directory, weights file, or hub id (as `user/model@revision`). Without it, the small model that ships with grove
    #[arg(long)]
    pub model: Option<String>,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,

    /// Prompt and generation settings.
    #[command(flatten)]
    pub generation: GenerationArgs,

    /// A draft model.
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
    /// The command line.
    pub options: &'a DecoderArgs,
    /// Options of a conversation, where the program has them.
    pub chat: Option<&'a ChatArgs>,
    /// Family of the model.
    pub family: F,
}

impl<F: Family> Program for Run<'_, F> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let DecoderArgs { model, device: device_args, generation, draft, summary } = self.options;
        let dtype = device_args.dtype.wanted();
        if *summary {
            return print_summary_of::<B, F>(self.options);
        }
        let path = resolve(model.as_deref(), F::SHIPS, &Wanted::model())?;
        let load = |path: &Path| -> Result<F::Model<B>, Exit> {
            self.options.fits::<B, F>(path)?;
            F::load(path, &device, dtype).map_err(failure)
        };
        if let Some(chat_args) = self.chat.filter(|chat| chat.chat) {
            return chat(generation, chat_args, &path, load);
        }
        run_with_draft(generation, draft, &path, load, F::logits)?;
        self.options.tell_published(F::PUBLISHED);
        Ok(())
    }
}

/// Does what `--summary` asks for.
pub fn print_summary_of<B: Backend, F: Family>(options: &DecoderArgs) -> Result<(), Exit> {
    let DecoderArgs { model, device, generation, .. } = options;
    let resolve = |wanted: &Wanted| resolve(model.as_deref(), F::SHIPS, wanted);
    let elsewhere = model.as_deref().filter(|model| !Path::new(model).exists());
    let skeleton = match elsewhere.map(F::preset::<B>) {
        Some(Ok(skeleton)) => skeleton,
        // Of a model on the hub its configuration is enough.
        Some(Err(_)) => F::configured::<B>(&resolve(&Wanted::files(["config.json"]))?).map_err(failure)?,
        None => F::skeleton::<B>(&resolve(&Wanted::model())?, device.dtype.wanted()).map_err(failure)?,
    };
    let positions = skeleton.context().unwrap_or(generation.max_new_tokens);
    let text = Some((positions, F::cache_bytes(&skeleton, positions)));
    print_summary(generation, &skeleton, F::parameters(&skeleton), text)
}

impl DecoderArgs {
    /// Refuses a model that needs more memory than the machine has to give: its weights, and the cache of the new tokens.
    pub fn fits<B: Backend, F: Family>(&self, path: &Path) -> Result<(), Exit> {
        let skeleton = F::skeleton::<B>(path, self.device.dtype.wanted()).map_err(failure)?;
        let positions = self.generation.max_new_tokens.min(skeleton.context().unwrap_or(usize::MAX));
        memory::fits(&self.device, &skeleton, F::cache_bytes(&skeleton, positions))
    }

    /// Names a published model to whoever has seen grove's own small one write.
    pub fn tell_published(&self, published: &str) {
        if self.model.is_none() && !self.generation.score && !self.generation.json {
            eprintln!("[this was grove's own small model; for a published one: --model {published}]");
        }
    }
}
