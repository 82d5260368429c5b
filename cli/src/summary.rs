//! `grove summary`: parameters and memory needs of a model of any family.

use grove::models::{
    GptNeo, ModelKind,
    bert::{Bert, BertForMaskedLm, BertForQuestionAnswering},
    memory::ModelSummary,
};

use crate::{kind::task_of_head, prelude::*};

/// Prints the parameter table of a model and the memory it needs, without reading the weights.
#[derive(Parser, Debug)]
#[command(after_help = "Examples:
  grove summary run/model
  grove summary gpt2-xl
  grove summary meta-llama/Llama-3.1-8B")]
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
        let size = (!Path::new(&self.model).exists()).then(|| ModelKind::of_preset(&self.model)).flatten();
        let path = match size {
            Some(_) => None,
            // The configuration is enough for a model on the hub.
            None if !Path::new(&self.model).exists() => {
                Some(resolve_named(&self.model, &FilePatterns::files(["config.json"]))?)
            }
            None => Some(resolve_named(&self.model, &FilePatterns::model())?),
        };
        let (kind, path) = match (size, &path) {
            (Some(kind), _) => (kind, None),
            (None, Some(path)) => (ModelKind::of(path)?, Some(&**path)),
            (None, None) => return Err(failure(format!("{}: no such model", self.model))),
        };
        let summary = match kind {
            ModelKind::Gpt2 => self.decoder::<B, Gpt2<B>>(path),
            ModelKind::GptNeo => self.decoder::<B, GptNeo<B>>(path),
            ModelKind::Llama => self.decoder::<B, Llama<B>>(path),
            ModelKind::RnnLm => self.decoder::<B, RnnLm<B>>(path),
            ModelKind::RnnClassifier => self.other::<B, RnnClassifier<B>>(path),
            ModelKind::ResNet => self.other::<B, ResNet<B>>(path),
            ModelKind::Vit => self.other::<B, Vit<B>>(path),
            ModelKind::Bert => match path.and_then(task_of_head) {
                Some("fill-mask") => self.other::<B, BertForMaskedLm<B>>(path),
                Some("classify") => self.other::<B, BertForSequenceClassification<B>>(path),
                Some("tokens") => self.other::<B, BertForTokenClassification<B>>(path),
                Some("answer") => self.other::<B, BertForQuestionAnswering<B>>(path),
                _ => self.other::<B, Bert<B>>(path),
            },
            other => Err(failure(format!("the model is a {other:?}, of which there is no summary"))),
        }?;
        report(self.json, &json!(summary), &summary.to_string())
    }
}

impl Options {
    fn decoder<B: Backend, M: CausalLm<B> + Pretrained<B>>(&self, path: Option<&Path>) -> Result<ModelSummary, Exit> {
        Ok(ModelSummary::new(&self.skeleton::<B, M>(path)?, self.tokens)?)
    }

    fn other<B: Backend, M: Pretrained<B>>(&self, path: Option<&Path>) -> Result<ModelSummary, Exit> {
        Ok(ModelSummary::of(&self.skeleton::<B, M>(path)?)?)
    }

    /// Returns the model without its weights, from a path or from a published size.
    fn skeleton<B: Backend, M: Pretrained<B>>(&self, path: Option<&Path>) -> Result<M, Exit> {
        let Some(path) = path else { return Ok(M::skeleton(&M::Config::preset(&self.model)?)?) };
        // A model on the hub was resolved to its configuration only.
        let weights = grove::weights::TensorFiles::open(path).is_ok();
        match weights {
            true => Ok(M::skeleton_at(path, None)?),
            false => Ok(M::skeleton(&M::Config::from_file(path.join("config.json"))?)?),
        }
    }
}
