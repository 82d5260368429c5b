//! Models chosen by their files, like transformers' `AutoModel`.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{Tree, count_params};
use grove_weights::TensorFiles;
use serde_json::{Map, Value};
use std::path::Path;

use crate::{
    Bert, BertConfig, CausalLm, GenerateOptions, Generated, Gpt2, Gpt2Config, GptNeo, GptNeoConfig, Llama, LlamaConfig,
    Pretrained, PretrainedConfig, ResNet, ResNetConfig, RnnClassifier, RnnLm, Vit, VitConfig,
    bert::{
        BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForQuestionAnswering,
        BertForSequenceClassification, BertForTokenClassification,
    },
    error::{ModelError, Result},
    model_files::{ModelFiles, resolve},
    pretrained::{config_beside, read_json},
    resnet,
    vision::find_name,
    vit,
};

/// Model family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ModelKind {
    /// [`Gpt2`].
    Gpt2,
    /// [`GptNeo`].
    GptNeo,
    /// [`Llama`], including Mistral, Qwen2 and Qwen3.
    Llama,
    /// [`RnnLm`].
    RnnLm,
    /// [`RnnClassifier`].
    RnnClassifier,
    /// [`Bert`], RoBERTa or DistilBERT, with or without a head.
    Bert,
    /// [`ResNet`].
    ResNet,
    /// [`Vit`], including DINOv2.
    Vit,
}

/// Family of each `model_type` in a `config.json`.
const MODEL_TYPES: [(&str, ModelKind); 19] = [
    ("gpt2", ModelKind::Gpt2),
    ("gpt_neo", ModelKind::GptNeo),
    ("llama", ModelKind::Llama),
    ("mistral", ModelKind::Llama),
    ("qwen2", ModelKind::Llama),
    ("qwen3", ModelKind::Llama),
    ("grove_rnn_lm", ModelKind::RnnLm),
    ("grove_rnn_classifier", ModelKind::RnnClassifier),
    ("bert", ModelKind::Bert),
    ("roberta", ModelKind::Bert),
    ("xlm-roberta", ModelKind::Bert),
    ("camembert", ModelKind::Bert),
    ("distilbert", ModelKind::Bert),
    ("resnet", ModelKind::ResNet),
    ("grove_resnet", ModelKind::ResNet),
    ("vit", ModelKind::Vit),
    ("grove_vit", ModelKind::Vit),
    ("dinov2", ModelKind::Vit),
    ("dinov2_with_registers", ModelKind::Vit),
];

/// Tensors that identify a text model without a `model_type`, after one of the [`PREFIXES`].
const TENSORS: [(&str, ModelKind); 5] = [
    ("h.0.attn.c_attn.weight", ModelKind::Gpt2),
    ("h.0.attn.attention.q_proj.weight", ModelKind::GptNeo),
    ("layers.0.self_attn.q_proj.weight", ModelKind::Llama),
    ("layers.0.attention.wq.weight", ModelKind::Llama),
    ("embeddings.word_embeddings.weight", ModelKind::Bert),
];

/// Optional prefixes of tensor names.
const PREFIXES: [&str; 6] = ["", "transformer.", "model.", "bert.", "roberta.", "distilbert."];

impl ModelKind {
    /// Returns the family of a model in a directory or a weights file. It is determined by the `model_type` of its
    /// `config.json`, else by its tensors or its GGUF metadata.
    ///
    /// # Errors
    /// A file cannot be read; the `model_type` is unknown; or, without a `model_type`, the tensors belong to no known
    /// family.
    pub fn of(path: impl AsRef<Path>) -> Result<Self> {
        let files = ModelFiles::at(path.as_ref())?;
        let path = files.path();
        let file = config_beside(path);
        let fields: Map<String, Value> = if file.is_file() { read_json(&file)? } else { Map::new() };
        // A `timm_wrapper` can contain any model of timm; its tensors identify the model.
        match fields.get("model_type").and_then(Value::as_str).filter(|name| *name != "timm_wrapper") {
            Some(name) => Self::from_model_type(name).ok_or_else(|| {
                let known = MODEL_TYPES.map(|(name, _)| name).join(", ");
                let reason = format!("model_type is '{name}', which grove does not have; it has {known}");
                ModelError::Json { file, reason }
            }),
            None => Self::of_tensors(&TensorFiles::open(path)?, path),
        }
    }

    /// Returns the family of a `model_type`.
    pub fn from_model_type(name: &str) -> Option<Self> {
        MODEL_TYPES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Returns the family that has a published size with this name, such as `gpt2-xl`.
    pub fn of_preset(name: &str) -> Option<Self> {
        let has_preset = [
            (Gpt2Config::preset(name).is_ok(), Self::Gpt2),
            (GptNeoConfig::preset(name).is_ok(), Self::GptNeo),
            (LlamaConfig::preset(name).is_ok(), Self::Llama),
            (BertConfig::preset(name).is_ok(), Self::Bert),
            (ResNetConfig::preset(name).is_ok(), Self::ResNet),
            (VitConfig::preset(name).is_ok(), Self::Vit),
        ];
        has_preset.into_iter().find(|(has, _)| *has).map(|(_, kind)| kind)
    }

    fn of_tensors(files: &TensorFiles, path: &Path) -> Result<Self> {
        match TENSORS.iter().find(|(name, _)| find_name(files, &PREFIXES, name).is_some()) {
            Some((_, kind)) => Ok(*kind),
            None if files.gguf().is_some() => Ok(Self::Llama),
            None if resnet::Naming::of(files).is_some() => Ok(Self::ResNet),
            None if vit::Naming::of(files).is_some() => Ok(Self::Vit),
            None => Err(ModelError::Config {
                reason: format!(
                    "{} has no config.json with a model_type, and its tensors have the names of no model that grove has",
                    path.display()
                ),
            }),
        }
    }
}

/// A model of the family that its files name.
///
/// As a tree it is the model itself: paths are the family's.
///
/// ```no_run
/// use grove_models::{AutoModel, GenerateOptions, Tokenizer};
/// # type B = burn_flex::Flex;
/// let id = "HuggingFaceTB/SmolLM2-135M";
/// let (model, tokenizer) = (AutoModel::<B>::from_pretrained(id, &Default::default())?, Tokenizer::from_pretrained(id)?);
/// let prompt = tokenizer.encode("Once upon a time")?;
/// let generated = model.generate(&[prompt], &GenerateOptions::default())?;
/// println!("{}", tokenizer.decode(&generated[0].ids)?);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
#[tree(transparent)]
#[non_exhaustive]
pub enum AutoModel<B: Backend> {
    /// GPT-2.
    Gpt2(Gpt2<B>),
    /// GPT-Neo.
    GptNeo(GptNeo<B>),
    /// LLaMA, Mistral, Qwen2 or Qwen3.
    Llama(Llama<B>),
    /// A recurrent language model.
    RnnLm(RnnLm<B>),
    /// A recurrent text classifier.
    RnnClassifier(RnnClassifier<B>),
    /// BERT, RoBERTa or DistilBERT without a known head in its `config.json`.
    Bert(Bert<B>),
    /// BERT with a masked-language-modelling head.
    BertForMaskedLm(BertForMaskedLm<B>),
    /// BERT with a next-sentence-prediction head.
    BertForNextSentence(BertForNextSentence<B>),
    /// BERT with a text-classification head.
    BertForSequenceClassification(BertForSequenceClassification<B>),
    /// BERT with a token-classification head.
    BertForTokenClassification(BertForTokenClassification<B>),
    /// BERT with an extractive question-answering head.
    BertForQuestionAnswering(BertForQuestionAnswering<B>),
    /// BERT with a multiple-choice head.
    BertForMultipleChoice(BertForMultipleChoice<B>),
    /// ResNet.
    ResNet(ResNet<B>),
    /// ViT or DINOv2.
    Vit(Vit<B>),
}

/// Evaluates an expression on the model of any variant.
macro_rules! each {
    (@ $($family:ident)*; $auto:expr, $model:ident => $result:expr) => {
        match $auto { $(AutoModel::$family($model) => $result,)* }
    };
    ($($rest:tt)*) => {
        each!(@ Gpt2 GptNeo Llama RnnLm RnnClassifier Bert BertForMaskedLm BertForNextSentence
            BertForSequenceClassification BertForTokenClassification BertForQuestionAnswering BertForMultipleChoice
            ResNet Vit; $($rest)*)
    };
}

impl<B: Backend> AutoModel<B> {
    /// Loads a published model from a directory, a weights file, or a hub id, which is downloaded unless it is cached.
    ///
    /// # Errors
    /// As [`ModelKind::of`] and [`Pretrained::from_pretrained`].
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Self::from_path(resolve(source)?, device, None)
    }

    /// Loads a model from a directory or a weights file. `dtype` is as in the family's [`Pretrained::from_path`].
    ///
    /// # Errors
    /// As [`ModelKind::of`] and [`Pretrained::from_path`].
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<Self> {
        Self::from_files(&ModelFiles::at(path.as_ref())?, device, dtype)
    }

    /// Loads a model and its adapter. `dtype` is as in the family's [`Pretrained::from_path`].
    ///
    /// # Errors
    /// As [`ModelKind::of`] and [`ModelFiles::load`].
    pub fn from_files(files: &ModelFiles, device: &B::Device, dtype: Option<DType>) -> Result<Self> {
        let path = files.path();
        Ok(match ModelKind::of(path)? {
            ModelKind::Gpt2 => Self::Gpt2(load(files, device, dtype)?),
            ModelKind::GptNeo => Self::GptNeo(load(files, device, dtype)?),
            ModelKind::Llama => Self::Llama(load(files, device, dtype)?),
            ModelKind::RnnLm => Self::RnnLm(load(files, device, dtype)?),
            ModelKind::RnnClassifier => Self::RnnClassifier(load(files, device, dtype)?),
            ModelKind::Bert => match head(&BertConfig::beside(path)?) {
                Some("MaskedLM") => Self::BertForMaskedLm(load(files, device, dtype)?),
                Some("NextSentencePrediction") => Self::BertForNextSentence(load(files, device, dtype)?),
                Some("SequenceClassification") => Self::BertForSequenceClassification(load(files, device, dtype)?),
                Some("TokenClassification") => Self::BertForTokenClassification(load(files, device, dtype)?),
                Some("QuestionAnswering") => Self::BertForQuestionAnswering(load(files, device, dtype)?),
                Some("MultipleChoice") => Self::BertForMultipleChoice(load(files, device, dtype)?),
                _ => Self::Bert(load(files, device, dtype)?),
            },
            ModelKind::ResNet => Self::ResNet(load(files, device, dtype)?),
            ModelKind::Vit => Self::Vit(load(files, device, dtype)?),
        })
    }

    /// Writes `config.json` and `model.safetensors` under the published names; see [`Pretrained::save_pretrained`].
    ///
    /// # Errors
    /// As [`Pretrained::save_pretrained`].
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        each!(self, model => model.save_pretrained(directory))
    }

    /// Saves the model in files of at most `max_shard_bytes`; see [`Pretrained::save_sharded`].
    ///
    /// # Errors
    /// As [`Pretrained::save_pretrained`].
    pub fn save_sharded(&self, directory: impl AsRef<Path>, max_shard_bytes: Option<usize>) -> Result<()> {
        each!(self, model => model.save_sharded(directory, max_shard_bytes))
    }

    /// Returns the model's family.
    pub fn kind(&self) -> ModelKind {
        match self {
            Self::Gpt2(_) => ModelKind::Gpt2,
            Self::GptNeo(_) => ModelKind::GptNeo,
            Self::Llama(_) => ModelKind::Llama,
            Self::RnnLm(_) => ModelKind::RnnLm,
            Self::RnnClassifier(_) => ModelKind::RnnClassifier,
            Self::ResNet(_) => ModelKind::ResNet,
            Self::Vit(_) => ModelKind::Vit,
            _ => ModelKind::Bert,
        }
    }

    /// Returns the fields of the model's `config.json`.
    ///
    /// # Errors
    /// As [`Pretrained::published_config`].
    pub fn config(&self) -> Result<Map<String, Value>> {
        each!(self, model => model.published_config())
    }

    /// Returns the number of parameters, without running statistics.
    pub fn num_parameters(&self) -> usize {
        count_params(self)
    }

    /// Continues prompts; see [`CausalLm::generate`].
    ///
    /// # Errors
    /// The model is not a causal language model; otherwise as [`CausalLm::generate`].
    pub fn generate(&self, prompts: &[Vec<u32>], options: &GenerateOptions) -> Result<Vec<Generated>> {
        self.generate_with(prompts, options, |_row, _token| true)
    }

    /// Continues prompts and calls a function with the row and the id of each new token; see [`CausalLm::generate_with`].
    ///
    /// # Errors
    /// As [`generate`](Self::generate).
    pub fn generate_with(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<Vec<Generated>> {
        match self {
            Self::Gpt2(model) => model.generate_with(prompts, options, on_token),
            Self::GptNeo(model) => model.generate_with(prompts, options, on_token),
            Self::Llama(model) => model.generate_with(prompts, options, on_token),
            Self::RnnLm(model) => model.generate_with(prompts, options, on_token),
            other => Err(ModelError::Config {
                reason: format!("a model of kind {:?} generates no text; use a causal language model", other.kind()),
            }),
        }
    }
}

fn load<B: Backend, M: Pretrained<B>>(files: &ModelFiles, device: &B::Device, dtype: Option<DType>) -> Result<M> {
    Ok(files.load(device, dtype)?.0)
}

/// Returns the head that the `architectures` of a `config.json` name, such as `MaskedLM` for `RobertaForMaskedLM`.
fn head(config: &BertConfig) -> Option<&str> {
    let class = config.other.get("architectures")?.as_array()?.first()?.as_str()?;
    Some(class.split_once("For")?.1)
}
