//! The text-generation program of all decoders: GPT-2, GPT-Neo, LLaMA, recurrent networks.

use grove::models::{DecoderFamily, ModelKind};

use super::{
    GenerationArgs,
    chat::{ChatArgs, chat},
    many::{FileArgs, continue_file},
    write,
};
use crate::{kind::check_kind, memory, model_summary::ModelSummary, prelude::*, program::tell_small};

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
    #[arg(long, conflicts_with_all = [
        "score", "text", "prompt", "prompt_ids", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "stop",
        "ignore_eos", "seed", "repeat", "jit", "draft", "quantized_activations"
    ])]
    pub summary: bool,

    /// Device and type.
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// The small model of each family that ships with grove, and the hub id of a published one.
static MODELS: [(ModelKind, &str, &str); 4] = [
    (ModelKind::Gpt2, "gpt2-austen", "openai-community/gpt2"),
    (ModelKind::GptNeo, "gpt-neo-austen", "EleutherAI/gpt-neo-125m"),
    (ModelKind::Llama, "llama-austen", "HuggingFaceTB/SmolLM2-135M-Instruct --chat"),
    (ModelKind::RnnLm, "rnn-austen", "DIR, of a model that `train_rnn` trained"),
];

/// Name of the small chat model that ships with grove, a LLaMA.
const SHIPPED_CHAT: &str = "llama-austen-chat";

/// Hub id of a published chat model.
pub(super) const PUBLISHED_CHAT: &str = "HuggingFaceTB/SmolLM2-135M-Instruct";

/// Returns the name of the family's small model that ships with grove; of GPT-2's, if the family has none.
pub(super) fn shipped_decoder(kind: ModelKind) -> &'static str {
    models_of(kind).unwrap_or(&MODELS[0]).1
}

fn models_of(kind: ModelKind) -> Option<&'static (ModelKind, &'static str, &'static str)> {
    MODELS.iter().find(|(of, ..)| *of == kind)
}

/// The command of a program that generates text.
pub struct Run<'a, F> {
    /// The command line.
    pub options: &'a DecoderArgs,
    /// Options of a conversation, if the program has any.
    pub chat: Option<&'a ChatArgs>,
    /// Options for the prompts of a file, if the program has any.
    pub file: Option<&'a FileArgs>,
    /// Family of the model.
    pub family: F,
}

impl<F: DecoderFamily> Command for Run<'_, F> {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        self.options.check()
    }

    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit> {
        let DecoderArgs { model, device: DeviceArgs { dtype, .. }, generation, summary, adapter } = self.options;
        if *summary {
            return print_summary_of::<B, F>(self.options);
        }
        let talk = self.chat.filter(|chat| chat.chat);
        let ships = if talk.is_some() { SHIPPED_CHAT } else { shipped_decoder(F::KIND) };
        let path = resolve(model.as_deref(), ships)?;
        check_kind(&path, F::KIND)?;
        let files = with_adapter(&path, adapter.as_deref())?;
        let load_for = |files: &ModelFiles, prompt: usize, rows: usize, less: &str| -> Result<F::Model<B>, Exit> {
            self.options.fits::<B, F>(files, prompt, rows, less)?;
            let model = files.load::<B, F::Model<B>>(device, dtype.wanted())?.0;
            if generation.quantized_activations {
                return model.with_quantized_activations().ok_or_else(no_quantized_weights);
            }
            Ok(model)
        };
        let load = |files: &ModelFiles, prompt| load_for(files, prompt, generation.samples, "fewer --max-new-tokens");
        if let Some(args) = self.file
            && let Some(file) = &args.file
        {
            let less = "fewer --max-new-tokens, or a smaller --batch-size";
            let load = |prompt, rows| load_for(&files, prompt, rows, less);
            continue_file(generation, (args, file), &files, load)?;
        } else if let Some(talk) = talk {
            chat(generation, talk, &files, load)?;
            self.options.tell_small("chat model", PUBLISHED_CHAT);
            return Ok(Ended::Finished);
        } else {
            write(generation, &files, load)?;
        }
        self.options.tell_published(F::KIND);
        Ok(Ended::Finished)
    }
}

fn no_quantized_weights() -> Exit {
    usage(
        "--quantized-activations needs a model with quantized weights: a LLaMA in a GGUF file, without --dtype, on the backend flex or \
         candle",
    )
}

/// Prints the summary of `--summary`: the parameter table and the memory needed.
fn print_summary_of<B: Backend, F: DecoderFamily>(options: &DecoderArgs) -> Result<Ended, Exit> {
    let DecoderArgs { model, device, generation, .. } = options;
    let elsewhere = model.as_deref().filter(|model| !Path::new(model).exists());
    let preset = elsewhere.and_then(|model| <F::Model<B> as Pretrained<B>>::Config::preset(model).ok());
    let skeleton = match preset {
        Some(config) => F::Model::<B>::skeleton(&config)?,
        None => {
            let path = elsewhere.map_or_else(|| resolve(model.as_deref(), shipped_decoder(F::KIND)), resolve_config)?;
            check_kind(&path, F::KIND)?;
            // The configuration is enough for a model on the hub, if it has one.
            match elsewhere.is_some() && path.join("config.json").is_file() {
                true => F::Model::<B>::skeleton(&PretrainedConfig::from_file(path)?)?,
                false => F::Model::<B>::skeleton_at(path, device.dtype.wanted())?,
            }
        }
    };
    let summary = ModelSummary::new(&skeleton, generation.new_positions(), generation.cache_dtype())?;
    report(generation.json, &json!(summary), &summary.to_string())
}

impl DecoderArgs {
    /// Checks the options alone, before any file is read. Returns the device, which may not exist.
    pub fn check(&self) -> Result<DeviceSpec, Exit> {
        self.generation.check()?;
        self.device.spec()
    }

    /// Rejects a model that needs more memory than is available, for its weights and the caches of rows of `prompt` tokens and
    /// the new tokens. `less` is the advice for smaller caches.
    fn fits<B: Backend, F: DecoderFamily>(
        &self,
        files: &ModelFiles,
        prompt: usize,
        rows: usize,
        less: &str,
    ) -> Result<(), Exit> {
        let skeleton = F::Model::<B>::skeleton_at(files.path(), self.device.dtype.wanted())?;
        if self.generation.quantized_activations && skeleton.clone().with_quantized_activations().is_none() {
            return Err(no_quantized_weights());
        }
        let cache = match self.generation.score {
            true => None,
            false => {
                let settings = self.generation.settings(files)?;
                let most = settings.max_length.unwrap_or(usize::MAX).min(skeleton.context().unwrap_or(usize::MAX));
                let positions = prompt.saturating_add(settings.max_new_tokens).min(most);
                skeleton.cache_bytes(positions, settings.cache_dtype).map(|bytes| bytes.saturating_mul(rows))
            }
        };
        memory::fits(&self.device, &skeleton, cache.unwrap_or(0), less)
    }

    /// Suggests a published model after text was generated with the small model that ships.
    fn tell_published(&self, kind: ModelKind) {
        if let Some((.., published)) = models_of(kind) {
            self.tell_small("model", published);
        }
    }

    fn tell_small(&self, model: &str, published: &str) {
        if self.model.is_none() && !self.generation.score && !self.generation.json {
            tell_small(model, published);
        }
    }
}
