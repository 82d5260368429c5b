//! Options of text generation.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use grove::tensor::FloatDType;

use crate::{
    prelude::*,
    training::{Given, need},
};

/// Default sampling, if neither the options nor the model's files set it.
const DEFAULT_SAMPLING: Sampling =
    Sampling { temperature: 0.8, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0 };

/// Prompt and generation settings.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct GenerationArgs {
    #[command(flatten)]
    given: Given,

    /// Text to continue [default: standard input if it is a pipe or file, else a sample text]
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt", "prompt_ids"])]
    pub text: Option<String>,

    /// Text to continue, same as PROMPT
    #[arg(long, conflicts_with = "prompt_ids")]
    pub prompt: Option<String>,

    /// Token ids to continue, such as 5,17,400; the model then needs no tokenizer
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub prompt_ids: Option<Vec<u32>>,

    /// Maximum number of new tokens [default: generation_config.json, or 128]
    #[arg(long, value_name = "N", help_heading = "Generation")]
    pub max_new_tokens: Option<usize>,

    /// Sampling temperature; 0 always takes the most likely token [default: 0.8]
    ///
    /// The defaults of this and the following sampling options come from the model's generation_config.json, if it has them.
    #[arg(long, value_name = "T", help_heading = "Generation")]
    pub temperature: Option<f32>,

    /// Sample among the K most probable tokens; 0 samples among all
    #[arg(long, value_name = "K", help_heading = "Generation")]
    pub top_k: Option<usize>,

    /// Sample among the most probable tokens whose probabilities add up to P
    #[arg(long, value_name = "P", help_heading = "Generation")]
    pub top_p: Option<f32>,

    /// Sample among the tokens that have at least P times the probability of the most probable one
    #[arg(long, value_name = "P", help_heading = "Generation")]
    pub min_p: Option<f32>,

    /// Penalty for tokens that have already occurred; 1 disables it [default: 1]
    #[arg(long, value_name = "R", help_heading = "Generation")]
    pub repetition_penalty: Option<f32>,

    /// Number of continuations to generate
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Generation")]
    pub samples: usize,

    /// Stop before this text; can be given several times
    #[arg(long, value_name = "TEXT", help_heading = "Generation")]
    pub stop: Vec<String>,

    /// Continue after end-of-text tokens
    #[arg(long, help_heading = "Generation")]
    pub ignore_eos: bool,

    /// Random seed
    #[arg(long, default_value_t = 0, help_heading = "Generation")]
    pub seed: u64,

    /// Generate N times and report the last; the first includes compiling a GPU's kernels
    #[arg(long, default_value_t = 1, value_name = "N", conflicts_with = "score", help_heading = "Generation")]
    pub repeat: usize,

    /// Type of the cached keys and values; a 16-bit type halves the memory of an f32 cache, and rounds them [default: that in
    /// which the model computes]
    #[arg(long, value_name = "TYPE", value_parser = cache_type(), conflicts_with = "score", help_heading = "Generation")]
    pub cache_dtype: Option<Dtype>,

    /// Round the inputs of quantized layers to 8 bits: faster, and less accurate; for a GGUF file with quantized weights
    #[arg(long, help_heading = "Generation")]
    pub quantized_activations: bool,

    /// Compile the decoding step, once for each cache size
    #[arg(long, conflicts_with_all = ["score", "draft"], help_heading = "Generation")]
    pub jit: bool,

    /// Print the prompt's loss in nats per token and its perplexity; the options of the generation then have no effect
    #[arg(long)]
    pub score: bool,

    /// Distance between the windows of a text longer than the context, in tokens; with --score [default: half the context]
    #[arg(long, value_name = "N", requires = "score")]
    pub stride: Option<usize>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// Draft model for speculative decoding: a smaller model with the same vocabulary. The text stays the same
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["samples", "score"], help_heading = "Draft")]
    pub draft: Option<String>,

    /// Number of tokens that the draft proposes per step, at most 16
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        value_parser = draft_tokens,
        requires = "draft",
        help_heading = "Draft"
    )]
    pub draft_tokens: usize,
}

impl GenerationArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
        need("draft", self.draft.is_some(), [("draft-tokens", self.given.has("draft_tokens"))])?;
        need("score", self.score, [("stride", self.stride.is_some())])?;
        let stride = self.stride.unwrap_or(1);
        at_least_one([("samples", self.samples), ("repeat", self.repeat), ("stride", stride)])?;
        if self.stop.iter().any(String::is_empty) {
            return Err(usage("--stop is empty: give the text before which the generation ends"));
        }
        if self.prompt() == Some("") || self.prompt_ids.as_ref().is_some_and(Vec::is_empty) {
            return Err(usage(ModelError::EmptyPrompt));
        }
        self.sampling(DEFAULT_SAMPLING).validate().map_err(usage)
    }

    /// Returns the text to continue, if one was given.
    pub fn prompt(&self) -> Option<&str> {
        self.text.as_deref().or(self.prompt.as_deref())
    }

    /// Returns the number of cache positions of the new tokens, over all rows.
    pub fn new_positions(&self) -> usize {
        let tokens = self.max_new_tokens.unwrap_or(GenerateOptions::default().max_new_tokens);
        tokens.saturating_mul(self.samples)
    }

    /// Returns the dtype of the cache; `None` for the model's.
    pub fn cache_dtype(&self) -> Option<FloatDType> {
        self.cache_dtype.map(FloatDType::from)
    }

    /// Returns the settings of the generation. Settings missing from the options come from the model's files.
    pub fn settings(&self, files: &ModelFiles) -> Result<GenerateOptions, Exit> {
        let published = GenerateOptions::published_in(files, DEFAULT_SAMPLING)?;
        Ok(GenerateOptions {
            max_new_tokens: self.max_new_tokens.unwrap_or(published.max_new_tokens),
            max_length: published.max_length.filter(|_| self.max_new_tokens.is_none()),
            stop_strings: [&*self.stop, &*published.stop_strings].concat(),
            sampling: self.sampling(published.sampling.clone()),
            ignore_eos: self.ignore_eos,
            cache_dtype: self.cache_dtype(),
            key: Key::new(self.seed),
            ..published
        })
    }

    /// Returns the sampling of the options, with missing settings from `default`.
    fn sampling(&self, default: Sampling) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            // As in transformers, 0 is off.
            top_k: self.top_k.or(default.top_k).filter(|top_k| *top_k > 0),
            top_p: self.top_p.or(default.top_p),
            min_p: self.min_p.or(default.min_p),
            repetition_penalty: self.repetition_penalty.unwrap_or(default.repetition_penalty),
        }
    }
}

/// Returns the parser of the cache's type, which has the names of `--dtype` without `auto`.
fn cache_type() -> impl TypedValueParser<Value = Dtype> {
    PossibleValuesParser::new(["f32", "f16", "bf16"]).try_map(|name| Dtype::from_str(&name, true))
}

/// Parses the number of draft tokens, so that an invalid one is rejected before any model is loaded.
fn draft_tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=16) => Ok(number),
        Ok(_) => Err("it must be between 1 and 16".into()),
        Err(error) => Err(format!("{error}")),
    }
}
