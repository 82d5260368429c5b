//! Sentence embeddings: "Sentence-BERT" (Reimers and Gurevych, 2019), in the format of sentence-transformers.

mod files;
mod modules;

use burn::tensor::{DType, Tensor};
use grove_backend::{Backend, at_least_f32};
use grove_layers::lora;
use grove_tree::Tree;
use grove_weights::{Report, resolve_model};
use std::{collections::BTreeMap, path::Path};

pub use modules::{Dense, SentenceModule};

use super::{Bert, TextBatch, names::published_names};
use crate::{
    error::{ModelError, Result},
    peft::load_adapters,
};

/// Pooling of the tokens' states to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// State of the first token.
    Cls,
    /// Maximum of each component.
    Max,
    /// Mean of the states.
    Mean,
    /// Sum of the states, divided by the square root of their number.
    MeanSqrtLen,
    /// Mean of the states, weighted by their positions (from 1).
    WeightedMean,
    /// State of the last token.
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

/// An encoder with the pooling and the modules of its repository.
///
/// ```
/// use grove_models::{Bert, BertConfig, Pretrained, bert::{Pooling, SentenceEncoder, SentenceModule, Similarity}};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let sizes = BertConfig { vocab_size: 50, hidden_size: 8, num_hidden_layers: 2, ..BertConfig::default() };
/// # let config = BertConfig { num_attention_heads: 2, intermediate_size: 16, ..sizes };
/// // `SentenceEncoder::from_pretrained("sentence-transformers/all-MiniLM-L6-v2", &device)?` loads a published one.
/// let encoder = SentenceEncoder::<B> {
///     bert: Bert::init(&config, Key::new(0), &Default::default())?,
///     pooling: vec![Pooling::Mean],
///     include_prompt: true,
///     modules: vec![SentenceModule::Normalize],
///     truncate_dim: None,
///     max_len: 128,
///     lowercase: false,
///     prompts: Default::default(),
///     default_prompt: None,
///     similarity: Similarity::Cosine,
/// };
/// let texts = encoder.bert.batch(&[vec![1, 2, 3].into(), vec![4].into()])?;
/// assert_eq!(encoder.forward(&texts).dims(), [2, 8]); // a vector for each text
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct SentenceEncoder<B: Backend> {
    /// Encoder.
    pub bert: Bert<B>,
    /// Pooling methods. Their vectors are concatenated in this order.
    #[tree(static)]
    pub pooling: Vec<Pooling>,
    /// If false, the tokens of a prompt are excluded from the pooling.
    pub include_prompt: bool,
    /// Modules after the pooling, in order.
    pub modules: Vec<SentenceModule<B>>,
    /// Number of leading components that are returned; `None` for all. The truncated vectors are not normalised again.
    #[tree(static)]
    pub truncate_dim: Option<usize>,
    /// Maximum sequence length, in tokens. Longer texts must be truncated.
    pub max_len: usize,
    /// If true, texts are converted to lower case before tokenisation.
    pub lowercase: bool,
    /// Prompts by name. A prompt is prepended to a text.
    #[tree(static)]
    pub prompts: BTreeMap<String, String>,
    /// Name of the default prompt; `None` for no prompt.
    #[tree(static)]
    pub default_prompt: Option<String>,
    /// Similarity measure for which the vectors were trained.
    #[tree(static)]
    pub similarity: Similarity,
}

impl<B: Backend> SentenceEncoder<B> {
    /// Loads a published encoder from a directory, or a hub id such as `sentence-transformers/all-MiniLM-L6-v2`, which
    /// is downloaded unless it is cached.
    ///
    /// # Errors
    /// The error names the file or quotes the hub's answer, and says what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve_model(source)?, device, None)?.0)
    }

    /// Loads an encoder from a directory. `modules.json` determines the pooling and the modules after it. Without that
    /// file, the pooling is the mean.
    ///
    /// # Errors
    /// The error names the file and the cause. Unsupported modules and keys that change results are errors too.
    pub fn from_path(directory: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        files::read(directory.as_ref(), device, dtype)
    }

    /// Returns the encoder with a peft adapter from a directory merged into its weights.
    ///
    /// # Errors
    /// As [`load_adapters`](crate::peft::load_adapters).
    pub fn with_adapter(self, directory: impl AsRef<Path>) -> Result<Self> {
        let names = published_names(&self.bert.config, self.bert.pooler.is_some());
        let bert = lora::merge(load_adapters(self.bert, &names, directory)?);
        Ok(Self { bert, ..self })
    }

    /// Returns the prompt with this name, or the default prompt for `None`; empty if there is none.
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

    /// Computes the embeddings of texts.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, size]`: `hidden_size` times the number of pooling methods, unless a module changes it
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>) -> Tensor<B, 2> {
        self.forward_after(texts, 0)
    }

    /// Computes the embeddings of texts that begin with a prompt of `prompt_len` tokens. The prompt is excluded from
    /// the pooling unless `include_prompt` is true.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward).
    #[track_caller]
    pub fn forward_after(&self, texts: &TextBatch<B>, prompt_len: usize) -> Tensor<B, 2> {
        let states = self.bert.forward(texts, None); // [b, t, n]
        let (dtype, states) = (states.dtype(), at_least_f32(states)); // 16-bit sums would overflow or lose precision
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
    /// Pools each text's states after the first `skipped` to one vector.
    ///
    /// # Shapes
    /// - states `[b, t, n]`, mask `[b, t]`
    /// - output `[b, n]`
    #[track_caller]
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
                // Positions count from the beginning of the text, including the prompt.
                let positions: Vec<f32> = (skipped..skipped + t).map(|i| (i + 1) as f32).collect();
                let positions = Tensor::<B, 1>::from_data(positions.as_slice(), &mask.device()).cast(mask.dtype());
                let weights = mask * positions.reshape([1, t]);
                sum(weights.clone()) / total(weights)
            }
            Self::LastToken => {
                // 1 at the last token of each row: the token before padding or the end.
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
