use grove_backend::Backend;
use serde_json::{Map, Value};

use crate::{CausalLm, Gpt2, Gpt2Config, GptNeo, GptNeoConfig, Llama, LlamaConfig, Pretrained};

/// Properties of a decoder that a head depends on.
#[derive(Clone, Copy, Debug)]
pub struct DecoderFacts {
    /// Prefix of transformers' class names, such as `GPT2`.
    pub class: &'static str,
    /// Width of the hidden states.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_layers: usize,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
}

/// A decoder that can have another head than that of language modelling.
pub trait BaseDecoder<B: Backend>: CausalLm<B> + Pretrained<B> {
    /// Prefix of the decoder's tensor names in transformers' classes with a head.
    const PREFIX: &'static str;

    /// Returns the properties that a head depends on.
    fn facts(config: &Self::Config) -> DecoderFacts;

    /// Returns the fields of the `config.json` that are not the decoder's, such as `id2label`.
    fn other(config: &mut Self::Config) -> &mut Map<String, Value>;

    /// Returns the decoder without its output layer, if it has one of its own.
    #[must_use]
    fn without_lm_head(self) -> Self;
}

impl<B: Backend> BaseDecoder<B> for Gpt2<B> {
    const PREFIX: &'static str = "transformer.";

    fn facts(config: &Gpt2Config) -> DecoderFacts {
        DecoderFacts {
            class: "GPT2",
            hidden_size: config.n_embd,
            num_layers: config.n_layer,
            initializer_range: config.initializer_range,
        }
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

    fn facts(config: &GptNeoConfig) -> DecoderFacts {
        DecoderFacts {
            class: "GPTNeo",
            hidden_size: config.hidden_size,
            num_layers: config.num_layers,
            initializer_range: config.initializer_range,
        }
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

    fn facts(config: &LlamaConfig) -> DecoderFacts {
        DecoderFacts {
            class: config.model_type.class(),
            hidden_size: config.hidden_size,
            num_layers: config.num_hidden_layers,
            initializer_range: config.initializer_range,
        }
    }

    fn other(config: &mut LlamaConfig) -> &mut Map<String, Value> {
        &mut config.other
    }

    fn without_lm_head(self) -> Self {
        Self { lm_head: None, ..self }
    }
}
