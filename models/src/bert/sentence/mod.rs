//! Sentence embeddings: "Sentence-BERT" (Reimers and Gurevych, 2019), as the files of sentence-transformers describe them.

mod files;
mod modules;

use burn::tensor::{DType, Tensor};
use grove_backend::{Backend, at_least_f32};
use grove_layers::lora;
use grove_tree::Tree;
use grove_weights::Report;
use std::{collections::BTreeMap, path::Path};

pub use files::transformer_directory;
pub use modules::{Dense, SentenceModule};

use super::{Bert, TextBatch, names::published_names};
use crate::{
    error::{ModelError, Result},
    model_files::resolve,
    peft::load_adapters,
};

/// Pooling of the tokens' states into one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The first token's state.
    Cls,
    /// The maximum of each component.
    Max,
    /// The mean of the states.
    Mean,
    /// The sum of the states divided by the square root of their number.
    MeanSqrtLen,
    /// The mean of the states, each weighted by its position, from 1.
    WeightedMean,
    /// The last token's state.
    LastToken,
}

/// Similarity of two vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Similarity {
    /// Cosine of the angle, from -1 to 1.
    #[default]
    Cosine,
    /// Dot product.
    Dot,
    /// Negative Euclidean distance.
    Euclidean,
    /// Negative sum of absolute differences.
    Manhattan,
}

/// An encoder with the pooling that its repository prescribes.
#[derive(Tree, Clone, Debug)]
pub struct SentenceEncoder<B: Backend> {
    /// The encoder.
    pub bert: Bert<B>,
    /// Pooling methods. Their vectors are concatenated in this order.
    #[tree(static)]
    pub pooling: Vec<Pooling>,
    /// If false, the tokens of a prompt are left out of the pooling.
    pub include_prompt: bool,
    /// Modules after the pooling, in their order.
    pub modules: Vec<SentenceModule<B>>,
    /// Number of leading components that are returned; `None` for all. They are not normalised again.
    #[tree(static)]
    pub truncate_dim: Option<usize>,
    /// Maximum length, in tokens. Longer texts must be truncated.
    pub max_len: usize,
    /// If true, texts are put into lower case before the tokenizer's own normalisation.
    pub lowercase: bool,
    /// Prompts by name. A prompt is put before a text.
    #[tree(static)]
    pub prompts: BTreeMap<String, String>,
    /// Name of the prompt of texts for which no other is given; `None` for no prompt.
    #[tree(static)]
    pub default_prompt: Option<String>,
    /// Similarity for which the vectors were trained.
    #[tree(static)]
    pub similarity: Similarity,
}

impl<B: Backend> SentenceEncoder<B> {
    /// Loads a published one: a directory, or a hub id such as `sentence-transformers/all-MiniLM-L6-v2`, which is
    /// downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a directory. Pooling and what follows it are as `modules.json` prescribes, or the mean of the tokens' states
    /// without that file.
    ///
    /// # Errors
    /// The error names the file and the cause. A module or a key that changes results and is not supported is an error too.
    pub fn from_path(directory: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        files::read(directory.as_ref(), device, dtype)
    }

    /// The encoder with an adapter of peft in a directory, merged into its weights.
    ///
    /// # Errors
    /// As [`load_adapters`](crate::peft::load_adapters).
    pub fn with_adapter(self, directory: impl AsRef<Path>) -> Result<Self> {
        let names = published_names(&self.bert.config, self.bert.pooler.is_some());
        let bert = lora::merge(load_adapters(self.bert, &names, directory)?);
        Ok(Self { bert, ..self })
    }

    /// The prompt of a name, or the default one for `None`; empty if there is none.
    ///
    /// # Errors
    /// [`ModelError::Option`] if the encoder has no prompt of this name.
    pub fn prompt(&self, name: Option<&str>) -> Result<&str> {
        let Some(name) = name.or(self.default_prompt.as_deref()) else { return Ok("") };
        self.prompts.get(name).map(String::as_str).ok_or_else(|| ModelError::Option {
            option: "the prompt's name",
            value: format!("'{name}'"),
            range: "a name in `prompts` of the model's config_sentence_transformers.json",
        })
    }

    /// Vectors of texts.
    ///
    /// # Shapes
    /// - texts of `[b, t]`
    /// - output `[b, size]`: `hidden_size` times the number of pooling methods, unless a module changes it
    pub fn forward(&self, texts: &TextBatch<B>) -> Tensor<B, 2> {
        self.forward_after(texts, 0)
    }

    /// Vectors of texts that begin with a prompt of `prompt_len` tokens, which are left out of the pooling unless
    /// `include_prompt` is true.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward).
    pub fn forward_after(&self, texts: &TextBatch<B>, prompt_len: usize) -> Tensor<B, 2> {
        let states = self.bert.forward(texts, None); // [b, t, n]
        let (dtype, states) = (states.dtype(), at_least_f32(states)); // sums of 16 bits would overflow, or lose digits
        let mask = texts.mask.val().float().cast(states.dtype()); // [b, t]
        let skipped = if self.include_prompt { 0 } else { prompt_len };
        let parts = self.pooling.iter().map(|pooling| pooling.forward(states.clone(), mask.clone(), skipped));
        let vectors = Tensor::cat(parts.collect(), 1);
        let vectors = self.modules.iter().fold(vectors, |vectors, module| module.forward(vectors));
        let size = vectors.dims()[1];
        vectors.narrow(1, 0, self.truncate_dim.unwrap_or(size).min(size)).cast(dtype)
    }
}

impl Pooling {
    /// One vector for each text, from its states after the first `skipped`.
    ///
    /// # Shapes
    /// - states `[b, t, n]`, mask `[b, t]`
    /// - output `[b, n]`
    fn forward<B: Backend>(self, states: Tensor<B, 3>, mask: Tensor<B, 2>, skipped: usize) -> Tensor<B, 2> {
        let [b, t, n] = states.dims();
        let skipped = skipped.min(t - 1);
        let states = states.narrow(1, skipped, t - skipped);
        let mask = mask.narrow(1, skipped, t - skipped);
        let t = t - skipped;
        let sum = |weights: Tensor<B, 2>| (states.clone() * weights.reshape([b, t, 1])).sum_dim(1).reshape([b, n]);
        let total = |weights: Tensor<B, 2>| weights.sum_dim(1).clamp_min(1e-9);
        match self {
            Self::Cls => states.narrow(1, 0, 1).reshape([b, n]),
            Self::Mean => sum(mask.clone()) / total(mask),
            Self::MeanSqrtLen => sum(mask.clone()) / total(mask).sqrt(),
            Self::WeightedMean => {
                // Positions count from the beginning of the text, the prompt included.
                let positions: Vec<f32> = (skipped..skipped + t).map(|i| (i + 1) as f32).collect();
                let positions = Tensor::<B, 1>::from_data(positions.as_slice(), &mask.device()).cast(mask.dtype());
                let weights = mask * positions.reshape([1, t]);
                sum(weights.clone()) / total(weights)
            }
            Self::LastToken => {
                // 1 at the last token of each row: padding, or the end, comes next.
                let next = match t {
                    1 => mask.zeros_like(),
                    _ => Tensor::cat(
                        vec![mask.clone().narrow(1, 1, t - 1), mask.clone().narrow(1, 0, 1).zeros_like()],
                        1,
                    ),
                };
                sum(mask - next)
            }
            Self::Max => {
                let padding = mask.equal_elem(0.0).reshape([b, t, 1]).expand([b, t, n]);
                states.mask_fill(padding, f32::NEG_INFINITY).max_dim(1).reshape([b, n])
            }
        }
    }
}
