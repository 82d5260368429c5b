use grove_files::{FileError, KnownKeys, printable::excerpt, read_fields};
use grove_layers::Activation;
use grove_weights::TensorFiles;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::Path;

use super::{Architecture, gguf, meta, published_names};
use crate::{
    checks::{check, check_depth, check_divisible, check_epsilon, check_initializer_range, check_rates, check_sizes},
    config_keys::{check_others, unknown},
    end_tokens::{EndTokens, published_ends},
    error::{ModelError, Result, invalid},
    pretrained::{PretrainedConfig, config_beside},
    tied::is_tied,
};

/// Configuration of a LLaMA: the fields of the published `config.json`, with the same names. Fields that are absent
/// from a file default to the values of transformers' class for its `model_type`: those of LLaMA 2 7B, Mistral 7B,
/// Qwen2 or Qwen3.
///
/// ```
/// use grove_models::{LlamaConfig, PretrainedConfig};
/// assert_eq!(LlamaConfig::preset("smollm2-135m")?.num_hidden_layers, 30);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LlamaConfig {
    /// Model type: one of those that share the architecture.
    pub model_type: Architecture,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Hidden width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of query heads in a layer.
    pub num_attention_heads: usize,
    /// Number of key-value heads. Each serves the same number of query heads. `None` means as many as query heads.
    pub num_key_value_heads: Option<usize>,
    /// Head dimension; `None` means `hidden_size / num_attention_heads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head_dim: Option<usize>,
    /// Activation of the feed-forward layers' gate, by its name in transformers.
    pub hidden_act: String,
    /// Maximum sequence length, in tokens.
    pub max_position_embeddings: usize,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Added to the mean square in RMS norms for numerical stability.
    pub rms_norm_eps: f64,
    /// Base of the rotary angles, in the format of transformers 4; `None` means 10000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_theta: Option<f64>,
    /// Scaling of the rotary angles, in the format of transformers 4.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_scaling: Option<Map<String, Value>>,
    /// Base and scaling of the rotary angles, in the format of transformers 5.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rope_parameters: Option<Map<String, Value>>,
    /// If true, the attention's linear layers have biases. Qwen2's query, key and value projections always have biases.
    pub attention_bias: bool,
    /// If true, the feed-forward layers' linear layers have biases.
    pub mlp_bias: bool,
    /// Dropout rate of the attention weights in training.
    pub attention_dropout: f64,
    /// If true, the output layer shares the weights of the token embedding.
    pub tie_word_embeddings: bool,
    /// Attention window in positions, including the query's own, for architectures that have a window; `None` for all
    /// positions. Always saved, since the default for Mistral's files is 4096.
    pub sliding_window: Option<usize>,
    /// If true, Qwen2 and Qwen3 use their attention window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_sliding_window: Option<bool>,
    /// Number of leading layers of Qwen2 and Qwen3 that attend to all positions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_window_layers: Option<usize>,
    /// Attention type of each layer, `full_attention` or `sliding_attention`, in the format of transformers 5. Those of
    /// Mistral's files are followed as by `AutoModelForCausalLM`, which then selects Ministral's class; Mistral's own
    /// class ignores them. LLaMA has no window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer_types: Option<Vec<String>>,
    /// Token that begins a sequence.
    pub bos_token_id: Option<u32>,
    /// Tokens that end a sequence.
    pub eos_token_id: EndTokens,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for LlamaConfig {
    /// LLaMA 2 7B.
    fn default() -> Self {
        Self {
            model_type: Architecture::Llama,
            vocab_size: 32000,
            hidden_size: 4096,
            intermediate_size: 11008,
            num_hidden_layers: 32,
            num_attention_heads: 32,
            num_key_value_heads: None,
            head_dim: None,
            hidden_act: "silu".into(),
            max_position_embeddings: 2048,
            initializer_range: 0.02,
            rms_norm_eps: 1e-6,
            rope_theta: None,
            rope_scaling: None,
            rope_parameters: None,
            attention_bias: false,
            mlp_bias: false,
            attention_dropout: 0.0,
            tie_word_embeddings: false,
            sliding_window: None,
            use_sliding_window: None,
            max_window_layers: None,
            layer_types: None,
            bos_token_id: Some(1),
            eos_token_id: EndTokens::One(2),
            other: Map::new(),
        }
    }
}

/// Type of a layer whose attention has a window.
const SLIDING: &str = "sliding_attention";

impl LlamaConfig {
    /// Returns the number of key-value heads.
    pub fn n_kv_head(&self) -> usize {
        self.num_key_value_heads.unwrap_or(self.num_attention_heads)
    }

    /// Returns the head dimension.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.hidden_size / self.num_attention_heads.max(1))
    }

    /// Returns two flags: if the query, key and value projections have biases, and if the output projection has one.
    pub fn attention_biases(&self) -> [bool; 2] {
        match self.model_type {
            Architecture::Llama | Architecture::Qwen3 => [self.attention_bias; 2],
            Architecture::Mistral => [false; 2],
            Architecture::Qwen2 => [true, false],
        }
    }

    /// Returns true if each query and key head is normalised before the rotation.
    pub fn has_head_norms(&self) -> bool {
        self.model_type == Architecture::Qwen3
    }

    /// Returns the attention window of a layer in positions, including the query's own; `None` for all positions.
    pub fn window(&self, layer: usize) -> Option<usize> {
        let slides = match (&self.layer_types, self.model_type) {
            (_, Architecture::Llama) => false,
            (Some(types), _) => types.get(layer).is_some_and(|name| name == SLIDING),
            (None, Architecture::Mistral) => true,
            (None, Architecture::Qwen2 | Architecture::Qwen3) => {
                self.use_sliding_window == Some(true) && layer >= self.max_window_layers.unwrap_or(28)
            }
        };
        self.sliding_window.filter(|_| slides)
    }

    /// Returns the activation of the feed-forward layers' gate.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the name is unknown.
    pub fn activation(&self) -> Result<Activation> {
        self.hidden_act.parse().or_else(invalid)
    }

    /// Checks the number and the names of the layers' attention types, and that there is a window if a layer needs one.
    fn check_layer_types(&self) -> Result<()> {
        let Some(types) = &self.layer_types else { return Ok(()) };
        let (count, layers) = (types.len(), self.num_hidden_layers);
        check(count == layers, || format!("layer_types has {count} entries, but num_hidden_layers is {layers}"))?;
        // `attention` is the older name of full attention.
        let known = ["full_attention", "attention", SLIDING];
        if let Some((layer, name)) = types.iter().enumerate().find(|(_, name)| !known.contains(&name.as_str())) {
            let name = excerpt(name, 60);
            return invalid(format!(
                "layer_types[{layer}] is '{name}', which is not supported; known are full_attention and {SLIDING}"
            ));
        }
        let lacking = match self.model_type {
            Architecture::Llama => None,
            _ if self.sliding_window.is_none() => Some("sliding_window is null"),
            Architecture::Qwen2 | Architecture::Qwen3 if self.use_sliding_window != Some(true) => {
                Some("use_sliding_window is not true")
            }
            _ => None,
        };
        match (types.iter().position(|name| name == SLIDING), lacking) {
            (Some(layer), Some(lacking)) => invalid(format!(
                "layer_types[{layer}] is '{SLIDING}', but {lacking}; name the layer full_attention, or set the window"
            )),
            _ => Ok(()),
        }
    }
}

impl Architecture {
    /// Returns the defaults of absent fields that differ from LLaMA's.
    fn defaults(self) -> Vec<(&'static str, Value)> {
        let qwen = vec![
            ("vocab_size", json!(151936)),
            ("intermediate_size", json!(22016)),
            ("num_key_value_heads", json!(32)),
            ("max_position_embeddings", json!(32768)),
            ("sliding_window", json!(4096)),
            ("bos_token_id", Value::Null),
            ("eos_token_id", Value::Null),
        ];
        match self {
            Self::Llama => vec![],
            Self::Mistral => vec![
                ("intermediate_size", json!(14336)),
                ("num_key_value_heads", json!(8)),
                ("max_position_embeddings", json!(131072)),
                ("sliding_window", json!(4096)),
            ],
            Self::Qwen2 => qwen,
            Self::Qwen3 => [qwen, vec![("head_dim", json!(128))]].concat(),
        }
    }
}

/// Keys of the families' files that are not fields.
const KEYS: KnownKeys = KnownKeys {
    // Read with the rotary positions.
    followed: &["partial_rotary_factor", "original_max_position_embeddings"],
    without_effect: &[
        ("pretraining_tp", "rounding"),
        ("is_llama_config", "a note of the program that trained it"),
        ("rope_interleaved", "of the program that trained it; converters put the rows in transformers' order"),
    ],
    refused: &[],
};

impl PretrainedConfig for LlamaConfig {
    /// Reads a `config.json`. Absent fields default to the values of transformers' class for its `model_type`.
    fn read(file: &Path) -> Result<Self> {
        let config = read_fields(file, |fields| {
            let kind = fields.get("model_type").cloned().unwrap_or_else(|| json!("llama"));
            // An unknown `model_type` is refused later, when the field is deserialised.
            let family: Architecture = grove_files::from_json(kind).unwrap_or_default();
            for (name, value) in family.defaults() {
                fields.entry(name).or_insert(value);
            }
        })?;
        Ok(config)
    }

    /// Returns the configuration of a model. It is read from the GGUF metadata, if there is any, else from the
    /// `config.json` or Meta's `params.json` in the model's directory or beside its weights file.
    ///
    /// The end tokens of `generation_config.json`, if it names any, take precedence. If the checkpoint contains an
    /// output layer that differs from the token embedding, the two are not tied, whatever the file says.
    fn of(model: impl AsRef<Path>, checkpoint: &TensorFiles) -> Result<Self> {
        let model = model.as_ref();
        if let Some(metadata) = checkpoint.gguf() {
            return gguf::read(model, metadata, checkpoint).map_err(|error| match error {
                ModelError::Config { reason } => FileError::json(model, reason).into(),
                other => other,
            });
        }
        let (file, params) = (config_beside(model), config_beside(model).with_file_name("params.json"));
        let config =
            if !file.exists() && params.exists() { meta::read(&params, checkpoint)? } else { Self::from_file(file)? };
        let names = published_names(&Self { tie_word_embeddings: false, ..config.clone() });
        Ok(Self {
            tie_word_embeddings: is_tied(
                config.tie_word_embeddings,
                checkpoint,
                &names,
                ["embed_tokens.weight", "lm_head.weight"],
            )?,
            eos_token_id: published_ends(model, config.eos_token_id)?,
            ..config
        })
    }

    fn preset(name: &str) -> Result<Self> {
        Self::published_size(name)
    }

    fn unknown_keys(&self) -> Vec<&str> {
        unknown(&KEYS, &self.other)
    }

    fn validate(&self) -> Result<()> {
        check_sizes(
            28,
            [
                ("vocab_size", self.vocab_size),
                ("hidden_size", self.hidden_size),
                ("intermediate_size", self.intermediate_size),
                ("num_hidden_layers", self.num_hidden_layers),
                ("num_attention_heads", self.num_attention_heads),
                ("num_key_value_heads", self.n_kv_head()),
                ("head_dim", self.head_dim()),
                ("max_position_embeddings", self.max_position_embeddings),
                ("sliding_window", self.sliding_window.unwrap_or(1)),
            ],
        )?;
        let (heads, kv_heads) = (self.num_attention_heads, self.n_kv_head());
        if self.head_dim.is_none() {
            check_divisible(("hidden_size", self.hidden_size), ("num_attention_heads", heads))?;
        }
        let head_dim = self.head_dim();
        check(head_dim.is_multiple_of(2), || format!("head_dim is {head_dim}; rotary positions need an even number"))?;
        check_divisible(("num_attention_heads", heads), ("num_key_value_heads", kv_heads))?;
        check_depth("num_hidden_layers", self.num_hidden_layers)?;
        check(heads.saturating_mul(head_dim) <= 1 << 28, || format!("{heads} heads of {head_dim} are too wide"))?;
        self.check_layer_types()?;
        check_epsilon("rms_norm_eps", self.rms_norm_eps)?;
        check_initializer_range(self.initializer_range)?;
        check_rates([("attention_dropout", self.attention_dropout)])?;
        check_others(&KEYS, &self.other)?;
        self.rope()?;
        self.activation().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_transformers_is_accounted_for() {
        for class in ["LlamaConfig", "MistralConfig", "Qwen2Config", "Qwen3Config"] {
            crate::keys::assert_accounts_for::<LlamaConfig>(class, &KEYS);
        }
    }
}
