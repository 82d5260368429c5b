use grove_backend::Backend;
use serde_json::{Map, Value};

use crate::{CausalLm, Gpt2, Gpt2Config, GptNeo, GptNeoConfig, Llama, LlamaConfig, Pretrained};

/// A decoder that can have another head than that of language modelling.
pub trait BaseDecoder<B: Backend>: CausalLm<B> + Pretrained<B> {
    /// Prefix of the decoder's tensor names in transformers' classes with a head.
    const PREFIX: &'static str;

    /// Returns the prefix of transformers' class names, such as `GPT2`.
    fn class(config: &Self::Config) -> &'static str;

    /// Returns the width of the hidden states.
    fn hidden_size(config: &Self::Config) -> usize;

    /// Returns the number of layers.
    fn num_layers(config: &Self::Config) -> usize;

    /// Returns the standard deviation of initial weights.
    fn initializer_range(config: &Self::Config) -> f64;

    /// Returns the fields of the `config.json` that are not the decoder's, such as `id2label`.
    fn other(config: &mut Self::Config) -> &mut Map<String, Value>;

    /// Returns the decoder without its output layer, if it has one of its own.
    #[must_use]
    fn without_lm_head(self) -> Self;
}

impl<B: Backend> BaseDecoder<B> for Gpt2<B> {
    const PREFIX: &'static str = "transformer.";

    fn class(_: &Gpt2Config) -> &'static str {
        "GPT2"
    }

    fn hidden_size(config: &Gpt2Config) -> usize {
        config.n_embd
    }

    fn num_layers(config: &Gpt2Config) -> usize {
        config.n_layer
    }

    fn initializer_range(config: &Gpt2Config) -> f64 {
        config.initializer_range
    }

    fn other(config: &mut Gpt2Config) -> &mut Map<String, Value> {
        &mut config.other
    }

    fn without_lm_head(self) -> Self {
        Self { lm_head: None, ..self }
    }
}

impl<B: Backend> BaseDecoder<B> for GptNeo<B> {
    const PREFIX: &'static str = "transformer.";

    fn class(_: &GptNeoConfig) -> &'static str {
        "GPTNeo"
    }

    fn hidden_size(config: &GptNeoConfig) -> usize {
        config.hidden_size
    }

    fn num_layers(config: &GptNeoConfig) -> usize {
        config.num_layers
    }

    fn initializer_range(config: &GptNeoConfig) -> f64 {
        config.initializer_range
    }

    fn other(config: &mut GptNeoConfig) -> &mut Map<String, Value> {
        &mut config.other
    }

    fn without_lm_head(self) -> Self {
        Self { lm_head: None, ..self }
    }
}

impl<B: Backend> BaseDecoder<B> for Llama<B> {
    const PREFIX: &'static str = "model.";

    fn class(config: &LlamaConfig) -> &'static str {
        config.model_type.class()
    }

    fn hidden_size(config: &LlamaConfig) -> usize {
        config.hidden_size
    }

    fn num_layers(config: &LlamaConfig) -> usize {
        config.num_hidden_layers
    }

    fn initializer_range(config: &LlamaConfig) -> f64 {
        config.initializer_range
    }

    fn other(config: &mut LlamaConfig) -> &mut Map<String, Value> {
        &mut config.other
    }

    fn without_lm_head(self) -> Self {
        Self { lm_head: None, ..self }
    }
}
