//! Options and results of generation.

use burn::tensor::{DType, FloatDType};
use grove_backend::Backend;
use grove_models::{CausalLm, ModelError, Result};
use grove_tree::Key;

use super::{Sampling, TokenRules};

/// Options for generation.
///
/// ```
/// use grove_tasks::{GenerateOptions, generation::Sampling};
/// use grove_tree::Key;
/// let sampling = Sampling { temperature: 0.8, top_k: Some(40), ..Default::default() };
/// let options = GenerateOptions { max_new_tokens: 40, sampling, key: Key::new(1), ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of new tokens per prompt.
    pub max_new_tokens: usize,
    /// Maximum sequence length including the prompt, from a `generation_config.json` without
    /// [`max_new_tokens`](Self::max_new_tokens). At least one token is generated in any case.
    pub max_length: Option<usize>,
    /// Sampling options.
    pub sampling: Sampling,
    /// Restrictions of the next token.
    pub rules: TokenRules,
    /// Tokens that end a sequence, in addition to the model's own. They are not included in the result.
    pub stop_tokens: Vec<u32>,
    /// Strings that end a sequence, from a `generation_config.json`. A [`TextStream`](super::TextStream) applies them,
    /// since it decodes tokens; [`generate`](super::generate) ignores them.
    pub stop_strings: Vec<String>,
    /// The model's end tokens, from its `generation_config.json`; `None` for those that it was loaded with.
    pub end_tokens: Option<Vec<u32>>,
    /// If true, generation continues after the model's own end tokens.
    pub ignore_eos: bool,
    /// If false, a model whose hidden states all depend on the sequence length reprocesses the whole sequence for each
    /// token, which changes the result. Other models ignore this option.
    pub use_cache: bool,
    /// Maximum number of prompts that are continued at the same time; `None` for all. The next prompts enter the batch as
    /// others end. The texts do not depend on it, except that rounding can decide between two tokens that are almost
    /// equally likely.
    pub batch_size: Option<usize>,
    /// Dtype of the cached keys and values; `None` for that in which the model computes. `F16` and `BF16` halve the memory of
    /// an f32 cache and the time to read it, and round keys and values. A recurrent network ignores this option.
    pub cache_dtype: Option<FloatDType>,
    /// Key of the random numbers. Those of a token are a function of the key, the number of new tokens before it, and the
    /// index of its prompt.
    pub key: Key,
}

impl Default for GenerateOptions {
    /// Up to 128 tokens, sampled at temperature 1 with key 0.
    fn default() -> Self {
        Self {
            max_new_tokens: 128,
            max_length: None,
            sampling: Sampling::default(),
            rules: TokenRules::default(),
            stop_tokens: Vec::new(),
            stop_strings: Vec::new(),
            end_tokens: None,
            ignore_eos: false,
            use_cache: true,
            batch_size: None,
            cache_dtype: None,
            key: Key::new(0),
        }
    }
}

impl GenerateOptions {
    /// Checks the sampling options, the batch size, and the cache's dtype for a device.
    pub(super) fn validate<B: Backend>(&self, device: &B::Device) -> Result<()> {
        self.sampling.validate()?;
        if let Some(dtype) = self.cache_dtype.map(DType::from).filter(|&dtype| !B::computes_in(device, dtype)) {
            let value = dtype.name().into();
            return Err(ModelError::Option {
                option: "the cache's dtype",
                value,
                range: "one in which the device computes",
            });
        }
        match self.batch_size {
            Some(0) => Err(ModelError::Option { option: "the batch size", value: "0".into(), range: "at least 1" }),
            _ => Ok(()),
        }
    }

    /// Returns the maximum number of new tokens after a prompt.
    pub(super) fn most_after(&self, prompt: usize) -> usize {
        let most = self.max_length.map_or(usize::MAX, |length| length.saturating_sub(prompt).max(1));
        self.max_new_tokens.min(most)
    }

    /// Returns true if the model reprocesses the whole sequence for each token.
    pub(super) fn reads_again<B: Backend>(&self, model: &impl CausalLm<B>) -> bool {
        !self.use_cache && model.reads_prompts_whole()
    }

    /// Returns the key of a row's next token, `step` tokens after the prompt.
    pub(super) fn key_of(&self, step: usize, row: usize) -> Key {
        self.key.fold_in(step as u32).fold_in(row as u32)
    }
}

/// Reason why a sequence ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model generated an end token or a stop token.
    Stop,
    /// The maximum number of tokens was reached.
    Length,
    /// The model's context was full before the maximum number of tokens was reached.
    Context,
    /// The callback returned false.
    Callback,
}

/// Continuation of one prompt.
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{Generate, GenerateOptions, generation::Finish};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// let model = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// let options = GenerateOptions { max_new_tokens: 4, ..Default::default() };
/// let generated = model.generate(&[vec![1, 2, 3]], &options)?.remove(0);
/// assert_eq!((generated.ids.len(), generated.finish), (4, Finish::Length));
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// New tokens, without the one that ended the sequence.
    pub ids: Vec<u32>,
    /// Reason why the sequence ended.
    pub finish: Finish,
}
