//! The program of every decoder: GPT-2, GPT-Neo, LLaMA, recurrent networks.

use clap::Args;
use grove::{backend::DeviceSpec, models::memory::ModelSummary, weights::FilePatterns};

use super::{
    DraftArgs, GenerationArgs,
    chat::{ChatArgs, chat},
    write,
};
use crate::{DeviceArgs, memory, prelude::*, resolve};

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
pub trait Family: Sync {
    /// On a backend.
    type Model<B: Backend>: CausalLm<B> + Pretrained<B>;
    /// The model where nothing else is given: a small one that grove trained itself.
    const SHIPS: &'static str;
    /// A hub id of a published one.
    const PUBLISHED: &'static str;
}

/// The command of a program that generates text.
pub struct Run<'a, F> {
    /// The command line.
    pub options: &'a DecoderArgs,
    /// Options of a conversation, where the program has them.
    pub chat: Option<&'a ChatArgs>,
    /// Family of the model.
    pub family: F,
}

impl<F: Family> Command for Run<'_, F> {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.options.check()
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let DecoderArgs { model, device: DeviceArgs { dtype, .. }, generation, draft, summary } = self.options;
        if *summary {
            print_summary_of::<B, F>(self.options)?;
            return Ok(Ended::Finished);
        }
        let path = resolve(model.as_deref(), F::SHIPS, &FilePatterns::model())?;
        let load = |path: &Path| -> Result<F::Model<B>, Exit> {
            self.options.fits::<B, F>(path)?;
            Ok(F::Model::<B>::from_path(path, device, dtype.wanted())?.0)
        };
        match self.chat.filter(|chat| chat.chat) {
            Some(chat_args) => chat(generation, chat_args, &path, load)?,
            None => {
                write(generation, draft, &path, load)?;
                self.options.tell_published(F::PUBLISHED);
            }
        }
        Ok(Ended::Finished)
    }
}

/// Does what `--summary` asks for: prints the table of the parameters, and the memory that they need.
pub fn print_summary_of<B: Backend, F: Family>(options: &DecoderArgs) -> Result<(), Exit> {
    let DecoderArgs { model, device, generation, .. } = options;
    let resolve = |wanted: &FilePatterns| resolve(model.as_deref(), F::SHIPS, wanted);
    let elsewhere = model.as_deref().filter(|model| !Path::new(model).exists());
    let preset = elsewhere.map(<F::Model<B> as Pretrained<B>>::Config::preset);
    let skeleton = match preset {
        Some(Ok(config)) => F::Model::<B>::skeleton(&config)?,
        // Of a model on the hub its configuration is enough.
        Some(Err(_)) => {
            let file = resolve(&FilePatterns::files(["config.json"]))?;
            F::Model::<B>::skeleton(&<F::Model<B> as Pretrained<B>>::Config::from_file(file)?)?
        }
        None => F::Model::<B>::skeleton_at(resolve(&FilePatterns::model())?, device.dtype.wanted())?,
    };
    let summary = ModelSummary::new(&skeleton, generation.max_new_tokens)?;
    report(generation.json, &json!(summary), &summary.to_string())
}

impl DecoderArgs {
    /// Checks the options alone, before any file is read. Gives the device.
    pub fn check(&self) -> Result<DeviceSpec, Exit> {
        self.generation.check()?;
        self.device.spec()
    }

    /// Refuses a model that needs more memory than the machine has to give: its weights, and the cache of the new tokens.
    pub fn fits<B: Backend, F: Family>(&self, path: &Path) -> Result<(), Exit> {
        let skeleton = F::Model::<B>::skeleton_at(path, self.device.dtype.wanted())?;
        let positions = self.generation.max_new_tokens.min(skeleton.context().unwrap_or(usize::MAX));
        memory::fits(&self.device, &skeleton, skeleton.cache_bytes(positions).unwrap_or(0))
    }

    /// Names a published model to whoever has seen grove's own small one write.
    pub fn tell_published(&self, published: &str) {
        if self.model.is_none() && !self.generation.score && !self.generation.json {
            eprintln!("[this was grove's own small model; for a published one: --model {published}]");
        }
    }
}
