//! The options of examples that generate text.

use crate::prelude::*;

/// Sampling where neither the options nor the model's files set it.
pub const DEFAULT_SAMPLING: Sampling =
    Sampling { temperature: 0.8, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0 };

/// Most new tokens where neither the options nor the model's files say.
pub const MAX_NEW_TOKENS: usize = 128;

/// Prompt and generation settings.
#[derive(Args, Debug)]
pub struct GenerationArgs {
    /// Text to continue; without one, standard input is read, or a small text of our own is used
    #[arg(value_name = "PROMPT", conflicts_with_all = ["prompt", "prompt_ids"])]
    pub text: Option<String>,

    /// Text to continue, as PROMPT
    #[arg(long, conflicts_with = "prompt_ids")]
    pub prompt: Option<String>,

    /// Tokens to continue, as numbers: 5,17,400. No tokenizer is needed then
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    pub prompt_ids: Option<Vec<u32>>,

    /// Largest number of new tokens [default: that of generation_config.json, or 128]
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Generation")]
    pub max_new_tokens: Option<usize>,

    /// Sampling temperature; 0 always takes the most likely token [default: 0.8]
    ///
    /// Settings that are not given here or below are taken from the model's generation_config.json.
    #[arg(long, value_name = "T", allow_negative_numbers = true, help_heading = "Generation")]
    pub temperature: Option<f32>,

    /// Sample among the K most probable tokens; 0 samples among all
    #[arg(long, value_name = "K", allow_negative_numbers = true, help_heading = "Generation")]
    pub top_k: Option<usize>,

    /// Sample among the most probable tokens whose probabilities add up to P
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = "Generation")]
    pub top_p: Option<f32>,

    /// Sample among the tokens that have at least P times the probability of the most probable one
    #[arg(long, value_name = "P", allow_negative_numbers = true, help_heading = "Generation")]
    pub min_p: Option<f32>,

    /// Lower the probability of tokens that have occurred; 1 does not [default: 1]
    #[arg(long, value_name = "R", allow_negative_numbers = true, help_heading = "Generation")]
    pub repetition_penalty: Option<f32>,

    /// Number of continuations to generate
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Generation")]
    pub samples: usize,

    /// End before this text; can be given several times
    #[arg(long, value_name = "TEXT", help_heading = "Generation")]
    pub stop: Vec<String>,

    /// Go on after the model has ended its text
    #[arg(long, help_heading = "Generation")]
    pub ignore_eos: bool,

    /// Seed of the random numbers
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, help_heading = "Generation")]
    pub seed: u64,

    /// Generate this many times and report the last: a GPU compiles its kernels in the first
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Generation", conflicts_with = "score")]
    pub repeat: usize,

    /// Trace the decoding step once and run the program; GROVE_LOG_COMPILES=1 shows when. The cache has a fixed size, which doubles
    #[arg(long, conflicts_with_all = ["score", "draft"], help_heading = "Generation")]
    pub jit: bool,

    /// Do not generate: print the prompt's mean negative log-likelihood (nats a token) and perplexity
    #[arg(long)]
    pub score: bool,

    /// With --score, of a text longer than the model's context: how many tokens the window moves on each time [default: half
    /// the context]
    #[arg(long, value_name = "N", requires = "score")]
    pub stride: Option<usize>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,

    /// A smaller model with the same tokens that proposes what comes next; the text stays the one without it
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["samples", "score"], help_heading = "Draft")]
    pub draft: Option<String>,

    /// Number of tokens that the draft proposes at once
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = draft_tokens, help_heading = "Draft")]
    pub draft_tokens: usize,
}

impl GenerationArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), Exit> {
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

    /// The text to continue, if one was given.
    pub fn prompt(&self) -> Option<&str> {
        self.text.as_deref().or(self.prompt.as_deref())
    }

    /// Positions that the cache of a model holds at most, in all rows, after a prompt of this many tokens.
    pub fn positions(&self, prompt: usize, context: Option<usize>) -> usize {
        let new = self.max_new_tokens.unwrap_or(MAX_NEW_TOKENS);
        prompt.saturating_add(new).min(context.unwrap_or(usize::MAX)).saturating_mul(self.samples)
    }

    /// Settings of the generation: the options, completed by those in the model's files.
    pub fn settings(&self, path: &Path) -> Result<GenerateOptions, Exit> {
        let published = GenerateOptions::published(path, DEFAULT_SAMPLING)?;
        Ok(GenerateOptions {
            max_new_tokens: self.max_new_tokens.unwrap_or(published.max_new_tokens),
            max_length: published.max_length.filter(|_| self.max_new_tokens.is_none()),
            stop_strings: [&*self.stop, &*published.stop_strings].concat(),
            sampling: self.sampling(published.sampling.clone()),
            ignore_eos: self.ignore_eos,
            key: Key::new(self.seed),
            ..published
        })
    }

    /// Sampling by the options, completed by a default.
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

/// Parses the number of draft tokens, so that a wrong one is refused before any model is read.
fn draft_tokens(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=16) => Ok(number),
        Ok(_) => Err("it must be between 1 and 16".into()),
        Err(error) => Err(format!("{error}")),
    }
}
