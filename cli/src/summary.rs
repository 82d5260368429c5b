//! `grove summary`: parameters and memory needs of a model of any family.

use grove::{
    models::{
        DecoderFamily, ModelKind,
        families::{WithDecoder, WithModel, class_with_head},
    },
    weights::{TensorFiles, transformer_directory},
};
use std::marker::PhantomData;

use crate::{model_summary::ModelSummary, prelude::*};

/// Prints the parameter table of a model and the memory it needs, without reading the weights.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  grove summary run/model
  grove summary gpt2-xl
  grove summary meta-llama/Llama-3.1-8B
  grove summary bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M")]
pub struct Options {
    /// Directory, weights file, hub id, or name of a published size, such as gpt2-xl or vit-base-patch16
    #[arg(value_name = "MODEL")]
    pub model: String,

    /// Sequence length, in tokens, for the memory of the cache, if the model has no context limit [default: 128]
    #[arg(long, value_name = "N", default_value_t = 128, hide_default_value = true)]
    pub tokens: usize,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

impl Command for Options {
    fn check(&self) -> Result<DeviceSpec, Exit> {
        at_least_one([("tokens", self.tokens)])?;
        Ok(DeviceSpec::default())
    }

    /// Prints the summary for the model family of the files.
    fn run<B: Backend>(&self, _: &B::Device) -> Result<Ended, Exit> {
        let exists = Path::new(&self.model).exists();
        let size = if exists { None } else { ModelKind::of_preset(&self.model) };
        let (kind, path) = match size {
            Some(kind) => (kind, None),
            None => {
                let path = if exists { resolve_named(&self.model)? } else { resolve_config(&self.model)? };
                // An older sentence encoder has its configuration in the folder of its transformer.
                let is_older = path.is_dir() && !path.join("config.json").is_file();
                let path = if is_older { transformer_directory(path)? } else { path };
                (ModelKind::of(&path)?, Some(path))
            }
        };
        let path = path.as_deref();
        let class = path.map(class_with_head).transpose()?.flatten();
        let summarise = || Summarise::<B> { options: self, path, backend: PhantomData };
        let language_model = match class.as_deref() {
            Some("SequenceClassification") => Err(kind),
            _ => kind.with_decoder(summarise()),
        };
        let other = |kind: ModelKind| kind.with_model(class.as_deref(), summarise());
        let summary = language_model.unwrap_or_else(other)?;
        report(self.json, &json!(summary), &summary.to_string())
    }
}

/// The summary of a model of any family.
struct Summarise<'a, B> {
    options: &'a Options,
    path: Option<&'a Path>,
    backend: PhantomData<B>,
}

impl<B: Backend> WithDecoder for Summarise<'_, B> {
    type Output = Result<ModelSummary, Exit>;

    /// Summarises a decoder, with the memory of its cache.
    fn run<F: DecoderFamily>(self) -> Self::Output {
        Ok(ModelSummary::new(&self.options.skeleton::<B, F::Model<B>>(self.path)?, self.options.tokens, None)?)
    }
}

impl<B: Backend> WithModel<B> for Summarise<'_, B> {
    type Output = Result<ModelSummary, Exit>;

    fn run<M: Pretrained<B>>(self) -> Self::Output {
        Ok(ModelSummary::of(&self.options.skeleton::<B, M>(self.path)?)?)
    }
}

impl Options {
    /// Returns the model without its weights, from a path or from a published size.
    fn skeleton<B: Backend, M: Pretrained<B>>(&self, path: Option<&Path>) -> Result<M, Exit> {
        let Some(path) = path else { return Ok(M::skeleton(&M::Config::preset(&self.model)?)?) };
        // A model on the hub can be resolved to its configuration only.
        match TensorFiles::open(path).is_ok() {
            true => Ok(M::skeleton_at(path, None)?),
            false => Ok(M::skeleton(&M::Config::from_file(path.join("config.json"))?)?),
        }
    }
}
