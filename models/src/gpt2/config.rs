use grove_files::{KnownKeys, read_fields};
use grove_layers::Activation;
use grove_weights::TensorFiles;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

use super::published_names;
use crate::{
    checks::{
        check_depth, check_divisible, check_epsilon, check_initializer_range, check_model_type, check_rates,
        check_sizes,
    },
    config_keys::{check_others, unknown},
    end_tokens::{EndTokens, published_ends},
    error::{Result, invalid},
    pretrained::{PretrainedConfig, preset_sizes, rename},
    tied::is_tied,
};

/// Configuration of a GPT-2: the fields of the published `config.json`, with the same names. Fields that are absent
/// from a file default to the values of the 124M model.
///
/// ```
/// use grove_models::{Gpt2Config, PretrainedConfig};
/// assert_eq!(Gpt2Config::preset("gpt2-medium")?.n_layer, 24);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpt2Config {
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Maximum sequence length, in tokens.
    pub n_positions: usize,
    /// Width of the residual stream.
    pub n_embd: usize,
    /// Number of blocks.
    pub n_layer: usize,
    /// Number of attention heads in a block; divides `n_embd`.
    pub n_head: usize,
    /// Hidden width of the feed-forward layers; `None` means `4 * n_embd`.
    pub n_inner: Option<usize>,
    /// Activation of the feed-forward layers, by its name in transformers.
    pub activation_function: String,
    /// Added to the variance in layer norms for numerical stability.
    pub layer_norm_epsilon: f64,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Dropout rate of the embeddings in training.
    pub embd_pdrop: f64,
    /// Dropout rate of the attention weights in training.
    pub attn_pdrop: f64,
    /// Dropout rate of each residual branch in training.
    pub resid_pdrop: f64,
    /// If true, attention scores are divided by the square root of the head dimension.
    pub scale_attn_weights: bool,
    /// If true, attention scores are also divided by the block's index, counted from 1.
    pub scale_attn_by_inverse_layer_idx: bool,
    /// Tokens that end a sequence. A token outside the vocabulary never occurs.
    pub eos_token_id: EndTokens,
    /// Token that begins a sequence.
    pub bos_token_id: Option<u32>,
    /// If true, the output layer shares the weights of the token embedding.
    pub tie_word_embeddings: bool,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for Gpt2Config {
    /// The 124M model.
    fn default() -> Self {
        let other = [("model_type", "gpt2".into()), ("architectures", vec!["GPT2LMHeadModel"].into())];
        Self {
            vocab_size: 50257,
            n_positions: 1024,
            n_embd: 768,
            n_layer: 12,
            n_head: 12,
            n_inner: None,
            activation_function: "gelu_new".into(),
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            embd_pdrop: 0.1,
            attn_pdrop: 0.1,
            resid_pdrop: 0.1,
            scale_attn_weights: true,
            scale_attn_by_inverse_layer_idx: false,
            eos_token_id: EndTokens::One(50256),
            bos_token_id: Some(50256),
            tie_word_embeddings: true,
            other: other.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        }
    }
}

impl Gpt2Config {
    /// Returns the hidden width of the feed-forward layers.
    pub fn inner(&self) -> usize {
        self.n_inner.unwrap_or(self.n_embd.saturating_mul(4))
    }

    /// Returns the factor of the attention scores in a block: `1 / sqrt(head_dim)`, unless the file specifies another.
    pub fn attention_scale(&self, block: usize) -> f64 {
        let scale = if self.scale_attn_weights { 1.0 / ((self.n_embd / self.n_head) as f64).sqrt() } else { 1.0 };
        if self.scale_attn_by_inverse_layer_idx { scale / (block + 1) as f64 } else { scale }
    }

    /// Returns the activation of the feed-forward layers.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the name is unknown.
    pub fn activation(&self) -> Result<Activation> {
        self.activation_function.parse().or_else(invalid)
    }
}

/// Keys of GPT-2's files that are not fields.
const KEYS: KnownKeys = KnownKeys {
    followed: &[],
    without_effect: &[("reorder_and_upcast_attn", "rounding"), ("n_ctx", "an older name of n_positions, beside it")],
    refused: &[],
};

impl PretrainedConfig for Gpt2Config {
    /// Reads a `config.json`. Accepts transformers' general names too, such as `num_hidden_layers`.
    fn read(file: &Path) -> Result<Self> {
        const GENERAL: [(&str, &str); 4] = [
            ("hidden_size", "n_embd"),
            ("max_position_embeddings", "n_positions"),
            ("num_attention_heads", "n_head"),
            ("num_hidden_layers", "n_layer"),
        ];
        Ok(read_fields(file, |fields| rename(fields, &GENERAL))?)
    }

    /// Returns the configuration of a model. The end tokens of `generation_config.json`, if it names any, take
    /// precedence over those of `config.json`. If the checkpoint contains an output layer that differs from the token
    /// embedding, the two are not tied, whatever the file says.
    fn of(model: impl AsRef<Path>, checkpoint: &TensorFiles) -> Result<Self> {
        let config = Self::beside(&model)?;
        let names = published_names(&Self { tie_word_embeddings: false, ..config.clone() });
        let tied = is_tied(config.tie_word_embeddings, checkpoint, &names, ["wte.weight", "lm_head.weight"])?;
        let eos_token_id = published_ends(model.as_ref(), config.eos_token_id)?;
        Ok(Self { tie_word_embeddings: tied, eos_token_id, ..config })
    }

    /// Returns a published size: `gpt2` (124M), `gpt2-medium` (355M), `gpt2-large` (774M) or `gpt2-xl` (1.5B).
    fn preset(name: &str) -> Result<Self> {
        let sizes = [
            ("gpt2", (768, 12, 12)),
            ("gpt2-medium", (1024, 24, 16)),
            ("gpt2-large", (1280, 36, 20)),
            ("gpt2-xl", (1600, 48, 25)),
        ];
        let (n_embd, n_layer, n_head) = preset_sizes(name, &sizes)?;
        Ok(Self { n_embd, n_layer, n_head, ..Self::default() })
    }

    fn unknown_keys(&self) -> Vec<&str> {
        unknown(&KEYS, &self.other)
    }

    fn validate(&self) -> Result<()> {
        if let Some(Value::String(found)) = self.other.get("model_type") {
            check_model_type(found, "gpt2")?;
        }
        check_sizes(
            28,
            [
                ("vocab_size", self.vocab_size),
                ("n_positions", self.n_positions),
                ("n_embd", self.n_embd),
                ("n_layer", self.n_layer),
                ("n_head", self.n_head),
                ("n_inner", self.inner()),
            ],
        )?;
        check_divisible(("n_embd", self.n_embd), ("n_head", self.n_head))?;
        check_depth("n_layer", self.n_layer)?;
        check_epsilon("layer_norm_epsilon", self.layer_norm_epsilon)?;
        check_initializer_range(self.initializer_range)?;
        check_rates([
            ("embd_pdrop", self.embd_pdrop),
            ("attn_pdrop", self.attn_pdrop),
            ("resid_pdrop", self.resid_pdrop),
        ])?;
        check_others(&KEYS, &self.other)?;
        self.activation().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(config: &Gpt2Config) -> String {
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn every_key_of_transformers_is_accounted_for() {
        crate::keys::assert_accounts_for::<Gpt2Config>("GPT2Config", &KEYS);
    }

    #[test]
    fn presets_are_possible() {
        for name in ["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"] {
            Gpt2Config::preset(name).unwrap().validate().unwrap();
        }
        assert!(Gpt2Config::preset("gpt3").unwrap_err().to_string().contains("gpt2-xl"));
    }

    #[test]
    fn reads_general_names_and_lists() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.json");
        let text = r#"{"hidden_size": 48, "num_hidden_layers": 3, "n_head": 4, "num_attention_heads": 9, "eos_token_id": [5, 7],
            "time_step_limit": [0.0, Infinity]}"#;
        std::fs::write(&file, text).unwrap();
        let config = Gpt2Config::from_file(&file).unwrap();
        assert_eq!(
            (config.n_embd, config.n_layer, config.n_head, config.eos_token_id.to_vec()),
            (48, 3, 4, vec![5, 7])
        );
        std::fs::write(&file, r#"{"n_layer": "twelve"}"#).unwrap();
        let error = Gpt2Config::from_file(&file).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains("`n_layer`") && error.contains("twelve"), "{error}");
    }

    #[test]
    fn impossible_ones_are_refused() {
        let base = Gpt2Config::default();
        assert!(message(&Gpt2Config { n_head: 7, ..base.clone() }).contains("not divisible"));
        assert!(message(&Gpt2Config { n_layer: 0, ..base.clone() }).contains("n_layer is 0"));
        assert!(message(&Gpt2Config { vocab_size: 1 << 60, ..base.clone() }).contains("vocab_size"));
        assert!(message(&Gpt2Config { layer_norm_epsilon: f64::NAN, ..base.clone() }).contains("layer_norm_epsilon"));
        assert!(message(&Gpt2Config { attn_pdrop: 1.5, ..base.clone() }).contains("attn_pdrop"));
        assert!(message(&Gpt2Config { activation_function: "maxout".into(), ..base }).contains("maxout"));
    }
}
