//! The table of model families. [`ModelKind`], [`AutoModel`], the command line and the anchors of each
//! backend follow from it.

#[macro_use]
mod rules;

use burn::tensor::DType;
use grove_backend::{Autodiff, Backend};
use grove_files::{FileError, read_json};
use grove_tree::{Tree, count_params};
use grove_weights::{TensorFiles, resolve_model};
use serde_json::{Map, Value};
use std::path::Path;

use crate::{
    Bert, BertConfig, Gpt2, Gpt2Config, GptNeo, GptNeoConfig, Llama, LlamaConfig, Pretrained, PretrainedConfig, ResNet,
    ResNetConfig, RnnClassifier, RnnClassifierConfig, RnnLm, RnnLmConfig, TextClassifier, TraceableLm, Vit, VitConfig,
    bert::{
        BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForQuestionAnswering,
        BertForSequenceClassification, BertForTokenClassification,
    },
    error::{ModelError, Result},
    model_files::ModelFiles,
    pretrained::{class_name, config_beside},
    resnet,
    sequence_classification::{
        Gpt2ForSequenceClassification, GptNeoForSequenceClassification, LlamaForSequenceClassification,
    },
    vision::{TrainableImageClassifier, find_name},
    vit,
};

// Each row: the kind, a name for messages, the configuration, each `model_type` of a `config.json`, tensors that
// identify a model without one, and the model's type. A family with heads has a type for each class of transformers
// that `architectures` may name: `MaskedLM` stands for `BertForMaskedLM` and `RobertaForMaskedLM`.
families! {
    decoders {
        /// [`Gpt2`].
        Gpt2: "a GPT-2", Gpt2Config, ["gpt2"], ["h.0.attn.c_attn.weight"], {
            "SequenceClassification" => Gpt2ForSequenceClassification,
            _ => Gpt2
        }
        /// [`GptNeo`].
        GptNeo: "a GPT-Neo", GptNeoConfig, ["gpt_neo"], ["h.0.attn.attention.q_proj.weight"], {
            "SequenceClassification" => GptNeoForSequenceClassification,
            _ => GptNeo
        }
        /// [`Llama`], including Mistral, Qwen2 and Qwen3.
        Llama: "a LLaMA", LlamaConfig, ["llama", "mistral", "qwen2", "qwen3"],
            ["layers.0.self_attn.q_proj.weight", "layers.0.attention.wq.weight"], {
                "SequenceClassification" => LlamaForSequenceClassification,
                _ => Llama
            }
        /// [`RnnLm`].
        RnnLm: "a recurrent language model", RnnLmConfig, ["grove_rnn_lm"], [], { _ => RnnLm }
    }
    images {
        /// [`ResNet`].
        ResNet: "a ResNet", ResNetConfig, ["resnet", "grove_resnet"], [], { _ => ResNet }
        /// [`Vit`], including DINOv2.
        Vit: "a ViT", VitConfig, ["vit", "grove_vit", "dinov2", "dinov2_with_registers"], [], { _ => Vit }
    }
    others {
        /// [`RnnClassifier`].
        RnnClassifier: "a recurrent classifier", RnnClassifierConfig, ["grove_rnn_classifier"], [],
            { _ => RnnClassifier }
        /// [`Bert`], RoBERTa or DistilBERT, with or without a head.
        Bert: "a BERT", BertConfig, ["bert", "roberta", "xlm-roberta", "camembert", "distilbert"],
            ["embeddings.word_embeddings.weight"], {
                "MaskedLM" => BertForMaskedLm,
                "NextSentencePrediction" => BertForNextSentence,
                "SequenceClassification" => BertForSequenceClassification,
                "TokenClassification" => BertForTokenClassification,
                "QuestionAnswering" => BertForQuestionAnswering,
                "MultipleChoice" => BertForMultipleChoice,
                _ => Bert
            }
    }
}

/// A row of the table.
struct Family {
    kind: ModelKind,
    name: &'static str,
    model_types: &'static [&'static str],
    tensors: &'static [&'static str],
    has_preset: fn(&str) -> bool,
}

/// A family of decoders, on any backend.
pub trait DecoderFamily: Default + Send + Sync {
    /// Type of the models.
    type Model<B: Backend>: TraceableLm<B> + Pretrained<B> + Tree<B, On<Autodiff<B>> = Self::Model<Autodiff<B>>>;
    /// Kind of the models.
    const KIND: ModelKind;
}

/// A family of image classifiers, on any backend.
pub trait ImageFamily: Default + Send + Sync {
    /// Type of the models.
    type Model<B: Backend>: TrainableImageClassifier<B> + Tree<B, On<Autodiff<B>> = Self::Model<Autodiff<B>>>;
    /// Kind of the models.
    const KIND: ModelKind;
}

/// A computation with a decoder of any family; see [`ModelKind::with_decoder`].
pub trait WithDecoder {
    /// Result of the computation.
    type Output;
    /// Runs the computation with a family.
    fn run<F: DecoderFamily>(self) -> Self::Output;
}

/// A computation with the decoder in an [`AutoModel`]; see [`AutoModel::with_decoder`].
pub trait WithDecoderModel<B: Backend> {
    /// Result of the computation.
    type Output;
    /// Runs the computation with the decoder.
    fn run<M: TraceableLm<B> + Pretrained<B>>(self, model: &M) -> Self::Output;
}

/// A computation with a decoder that classifies texts, of any family; see [`ModelKind::with_decoder_classifier`].
pub trait WithDecoderClassifier<B: Backend> {
    /// Result of the computation.
    type Output;
    /// Runs the computation with a type of model.
    fn run<M: TextClassifier<B>>(self) -> Self::Output;
}

/// A computation with an image classifier of any family; see [`ModelKind::with_image_classifier`].
pub trait WithImageClassifier {
    /// Result of the computation.
    type Output;
    /// Runs the computation with a family.
    fn run<F: ImageFamily>(self) -> Self::Output;
}

/// A computation with a model of any family; see [`ModelKind::with_model`].
pub trait WithModel<B: Backend> {
    /// Result of the computation.
    type Output;
    /// Runs the computation with a type of model.
    fn run<M: Pretrained<B>>(self) -> Self::Output;
}

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
        let fields = config_fields(path)?;
        // A `timm_wrapper` can contain any model of timm; its tensors identify the model.
        match fields.get("model_type").and_then(Value::as_str).filter(|name| *name != "timm_wrapper") {
            Some(name) => Self::from_model_type(name).ok_or_else(|| {
                let known: Vec<&str> = Self::model_types().map(|(name, _)| name).collect();
                let known = known.join(", ");
                let reason = format!("model_type is '{name}', which grove does not support; known are {known}");
                FileError::json(config_beside(path), reason).into()
            }),
            None => Self::of_tensors(&TensorFiles::open(path)?, path),
        }
    }

    /// Returns the family of a `model_type`.
    pub fn from_model_type(name: &str) -> Option<Self> {
        Self::model_types().find(|(known, _)| *known == name).map(|(_, kind)| kind)
    }

    /// Iterates over every known `model_type` of a `config.json`, with its family.
    pub fn model_types() -> impl Iterator<Item = (&'static str, Self)> {
        FAMILIES.iter().flat_map(|family| family.model_types.iter().map(|name| (*name, family.kind)))
    }

    /// Returns the family that has a published size with this name, such as `gpt2-xl`.
    pub fn of_preset(name: &str) -> Option<Self> {
        FAMILIES.iter().find(|family| (family.has_preset)(name)).map(|family| family.kind)
    }

    /// Returns the name of a model of this family for messages, such as "a GPT-2".
    pub fn name(self) -> &'static str {
        FAMILIES.iter().find(|family| family.kind == self).map_or("a model", |family| family.name)
    }

    fn of_tensors(files: &TensorFiles, path: &Path) -> Result<Self> {
        let has = |tensor: &&str| find_name(files, &PREFIXES, tensor).is_some();
        match FAMILIES.iter().find(|family| family.tensors.iter().any(has)) {
            Some(family) => Ok(family.kind),
            None if files.gguf().is_some() => Ok(Self::Llama),
            None if resnet::Naming::of(files).is_some() => Ok(Self::ResNet),
            None if vit::Naming::of(files).is_some() => Ok(Self::Vit),
            None => Err(ModelError::Config {
                reason: format!(
                    "{} has no config.json with a model_type, and the names of its tensors match no model of grove",
                    path.display()
                ),
            }),
        }
    }
}

impl<B: Backend> AutoModel<B> {
    /// Loads a published model from a directory, a weights file, or a hub id, which is downloaded unless it is cached.
    ///
    /// # Errors
    /// As [`ModelKind::of`] and [`Pretrained::from_pretrained`].
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Self::from_path(resolve_model(source)?, device, None)
    }

    /// Loads a model from a directory or a weights file. `dtype` is as in the family's [`Pretrained::from_path`].
    ///
    /// # Errors
    /// As [`ModelKind::of`] and [`Pretrained::from_path`].
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<Self> {
        Self::from_files(&ModelFiles::at(path.as_ref())?, device, dtype)
    }

    /// Writes `config.json` and `model.safetensors` under the published names; see [`Pretrained::save_pretrained`].
    ///
    /// # Errors
    /// As [`Pretrained::save_pretrained`].
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        self.save_sharded(directory, None)
    }

    /// Returns the number of parameters, without running statistics.
    pub fn num_parameters(&self) -> usize {
        count_params(self)
    }
}

/// Returns the class of the model in a directory or of a weights file, without the family's name: `MaskedLM` for
/// `RobertaForMaskedLM`. `None` if its `config.json` names no class with a head.
///
/// # Errors
/// The `config.json` cannot be read.
pub fn class_with_head(path: &Path) -> Result<Option<String>> {
    let fields = config_fields(path)?;
    Ok(class_name(&fields).and_then(|class| Some(class.split_once("For")?.1.to_owned())))
}

/// Returns the fields of the `config.json` in a directory or beside a weights file; none without one.
fn config_fields(path: &Path) -> Result<Map<String, Value>> {
    let file = config_beside(path);
    if file.is_file() { Ok(read_json(&file)?) } else { Ok(Map::new()) }
}
