//! The text-generation program of all decoders: GPT-2, GPT-Neo, LLaMA, recurrent networks.

use grove::models::{ModelKind, memory::ModelSummary};

use super::chat::{ChatArgs, chat};
use super::{GenerationArgs, write};
use crate::{kind::check_kind, memory, prelude::*};

/// Options of a program that generates text.
#[derive(Args, Debug)]
pub struct DecoderArgs {
    /// Directory, weights file, or hub id (user/model@revision) [default: a small model that ships with grove]
    #[arg(long)]
    pub model: Option<String>,

    /// LoRA adapter (peft) to add to the model: directory or hub id
    #[arg(long, value_name = "DIR|ID")]
    pub adapter: Option<String>,

    /// Prompt and generation settings.
    #[command(flatten)]
    pub generation: GenerationArgs,

    /// Print the parameter table and the memory needed instead of generating. Reads no weights; --model may name a published
    /// size
    #[arg(long, conflicts_with = "score")]
    pub summary: bool,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// A family of models.
pub trait Family: Sync {
    /// Model type on a backend.
    type Model<B: Backend>: TraceableLm<B> + Pretrained<B>;
    /// Default model: a small model that ships with grove.
    const SHIPS: &'static str;
    /// Hub id of a published model, for a hint.
    const PUBLISHED: &'static str;
    /// Kind of the family's models.
    const KIND: ModelKind;
}

/// GPT-2.
pub struct Gpt2s;

impl Family for Gpt2s {
    type Model<B: Backend> = Gpt2<B>;
    const SHIPS: &'static str = "gpt2-austen";
    const PUBLISHED: &'static str = "openai-community/gpt2";
    const KIND: ModelKind = ModelKind::Gpt2;
}

/// GPT-Neo.
pub struct GptNeos;

impl Family for GptNeos {
    type Model<B: Backend> = GptNeo<B>;
    const SHIPS: &'static str = "gpt-neo-austen";
    const PUBLISHED: &'static str = "EleutherAI/gpt-neo-125m";
    const KIND: ModelKind = ModelKind::GptNeo;
}

/// LLaMA and other models of its architecture.
pub struct Llamas;

impl Family for Llamas {
    type Model<B: Backend> = Llama<B>;
    const SHIPS: &'static str = "llama-austen";
    const PUBLISHED: &'static str = "HuggingFaceTB/SmolLM2-135M-Instruct --chat";
    const KIND: ModelKind = ModelKind::Llama;
}

/// Recurrent language models, as trained by the example `train_rnn`.
pub struct Rnns;

impl Family for Rnns {
    type Model<B: Backend> = RnnLm<B>;
    const SHIPS: &'static str = "rnn-austen";
    const PUBLISHED: &'static str = "DIR, of one that `train_rnn` made";
    const KIND: ModelKind = ModelKind::RnnLm;
}

/// The command of a program that generates text.
pub struct Run<'a, F> {
    /// The command line.
    pub options: &'a DecoderArgs,
    /// Options of a conversation, if the program has any.
    pub chat: Option<&'a ChatArgs>,
    /// Family of the model.
    pub family: F,
}

impl<F: Family> Command for Run<'_, F> {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.options.check()
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let DecoderArgs { model, device: DeviceArgs { dtype, .. }, generation, summary, adapter } = self.options;
        if *summary {
            return print_summary_of::<B, F>(self.options);
        }
        let path = resolve(model.as_deref(), F::SHIPS, &FilePatterns::model())?;
        check_kind(&path, &[F::KIND])?;
        // The adapter belongs to the model, not to the draft.
        let model_path = path.clone();
        let files_of = |path: &Path| with_adapter(path, adapter.as_deref().filter(|_| path == model_path));
        let load = |path: &Path, prompt: usize| -> Result<F::Model<B>, Exit> {
            self.options.fits::<B, F>(path, prompt)?;
            Ok(files_of(path)?.load::<B, F::Model<B>>(device, dtype.wanted())?.0)
        };
        if let Some(talk) = self.chat.filter(|chat| chat.chat) {
            return chat(generation, talk, &path, load);
        }
        write(generation, &path, load)?;
        self.options.tell_published(F::PUBLISHED);
        Ok(Ended::Finished)
    }
}

/// Prints the summary of `--summary`: the parameter table and the memory needed.
pub fn print_summary_of<B: Backend, F: Family>(options: &DecoderArgs) -> Result<Ended, Exit> {
    let DecoderArgs { model, device, generation, .. } = options;
    let resolve = |wanted: &FilePatterns| resolve(model.as_deref(), F::SHIPS, wanted);
    let elsewhere = model.as_deref().filter(|model| !Path::new(model).exists());
    let skeleton = match elsewhere.map(<F::Model<B> as Pretrained<B>>::Config::preset) {
        Some(Ok(config)) => F::Model::<B>::skeleton(&config)?,
        // The configuration is enough for a model on the hub.
        Some(Err(_)) => {
            F::Model::<B>::skeleton(&PretrainedConfig::from_file(resolve(&FilePatterns::files(["config.json"]))?)?)?
        }
        None => F::Model::<B>::skeleton_at(resolve(&FilePatterns::model())?, device.dtype.wanted())?,
    };
    let summary = ModelSummary::new(&skeleton, generation.positions(0, None))?;
    report(generation.json, &json!(summary), &summary.to_string())
}

impl DecoderArgs {
    /// Rejects a model that needs more memory than is available, for its weights and the cache of a prompt of `prompt` tokens and
    /// the new tokens.
    pub fn fits<B: Backend, F: Family>(&self, path: &Path, prompt: usize) -> Result<(), Exit> {
        let skeleton = F::Model::<B>::skeleton_at(path, self.device.dtype.wanted())?;
        let positions = self.generation.positions(prompt, skeleton.context());
        memory::fits(&self.device, &skeleton, skeleton.cache_bytes(positions).unwrap_or(0))
    }

    /// Suggests a published model after text was generated with the small model that ships.
    pub fn tell_published(&self, published: &str) {
        if self.model.is_none() && !self.generation.score && !self.generation.json {
            eprintln!("[this was grove's own small model; for a published one: --model {published}]");
        }
    }
}
