use grove_files::{KnownKeys, read_fields};
use grove_layers::Activation;
use grove_weights::TensorFiles;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::path::Path;

use super::published_names;
use crate::{
    checks::{
        check, check_depth, check_divisible, check_epsilon, check_initializer_range, check_model_type, check_rates,
        check_sizes,
    },
    config_keys::{check_others, unknown},
    end_tokens::{EndTokens, published_ends},
    error::{Result, invalid},
    pretrained::{PretrainedConfig, preset_sizes, rename},
    tied::is_tied,
};

/// Configuration of a GPT-Neo: the fields of the published `config.json`, with the same names. Fields that are absent
/// from a file default to the values of the 1.3B model.
///
/// ```
/// use grove_models::{GptNeoConfig, PretrainedConfig};
/// assert_eq!(GptNeoConfig::preset("gpt-neo-125m")?.num_layers, 12);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GptNeoConfig {
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Maximum sequence length, in tokens.
    pub max_position_embeddings: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of blocks.
    pub num_layers: usize,
    /// Number of attention heads in a block; divides `hidden_size`.
    pub num_heads: usize,
    /// Hidden width of the feed-forward layers; `None` means `4 * hidden_size`.
    pub intermediate_size: Option<usize>,
    /// Kinds of attention and their number of repetitions: `[[["global", "local"], 12]]`.
    pub attention_types: Vec<(Vec<AttentionKind>, usize)>,
    /// Attention window of local blocks, in positions, including the position itself.
    pub window_size: usize,
    /// Activation of the feed-forward layers, by its name in transformers.
    pub activation_function: String,
    /// Added to the variance in layer norms for numerical stability.
    pub layer_norm_epsilon: f64,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Dropout rate of the embeddings in training.
    pub embed_dropout: f64,
    /// Dropout rate of the attention weights in training.
    pub attention_dropout: f64,
    /// Dropout rate of each residual branch in training.
    pub resid_dropout: f64,
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

/// Kind of attention in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttentionKind {
    /// Attends to all earlier positions.
    Global,
    /// Attends to the last `window_size` positions.
    Local,
}

impl Default for GptNeoConfig {
    /// The 1.3B model.
    fn default() -> Self {
        let other = [("model_type", "gpt_neo".into()), ("architectures", vec!["GPTNeoForCausalLM"].into())];
        Self {
            vocab_size: 50257,
            max_position_embeddings: 2048,
            hidden_size: 2048,
            num_layers: 24,
            num_heads: 16,
            intermediate_size: None,
            attention_types: vec![(vec![AttentionKind::Global, AttentionKind::Local], 12)],
            window_size: 256,
            activation_function: "gelu_new".into(),
            layer_norm_epsilon: 1e-5,
            initializer_range: 0.02,
            embed_dropout: 0.0,
            attention_dropout: 0.0,
            resid_dropout: 0.0,
            eos_token_id: EndTokens::One(50256),
            bos_token_id: Some(50256),
            tie_word_embeddings: true,
            other: other.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        }
    }
}

impl GptNeoConfig {
    /// Returns the hidden width of the feed-forward layers.
    pub fn inner(&self) -> usize {
        self.intermediate_size.unwrap_or(self.hidden_size.saturating_mul(4))
    }

    /// Returns the attention kind of each block.
    pub fn kinds(&self) -> impl Iterator<Item = AttentionKind> {
        self.attention_types.iter().flat_map(|(kinds, times)| {
            // Bounded, since the file is untrusted. One more than there are blocks is noticed as too many.
            std::iter::repeat_n(kinds, (*times).min(self.num_layers.saturating_add(1))).flatten().copied()
        })
    }

    /// Returns the activation of the feed-forward layers.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the name is unknown.
    pub fn activation(&self) -> Result<Activation> {
        self.activation_function.parse().or_else(invalid)
    }
}

/// Key of the list of attention kinds, one per block, which transformers writes in addition to `attention_types`.
const LAYERS: &str = "attention_layers";

/// Replaces `attention_types` by the file's `attention_layers`, if these differ. In transformers, `attention_types` is
/// expanded to the list, and then the file's own list replaces it.
fn follow_layers(fields: &mut Map<String, Value>) {
    const TYPES: &str = "attention_types";
    if fields.get(TYPES).is_some_and(Value::is_null) {
        fields.remove(TYPES);
    }
    let Some(layers) = fields.remove(LAYERS).filter(|layers| !layers.is_null()) else { return };
    let types = fields.get(TYPES).and_then(|types| Vec::<(Vec<AttentionKind>, usize)>::deserialize(types).ok());
    let expanded: Option<Vec<AttentionKind>> = types.map(|attention_types| {
        let num_layers = layers.as_array().map_or(0, Vec::len);
        GptNeoConfig { attention_types, num_layers, ..GptNeoConfig::default() }.kinds().take(num_layers + 1).collect()
    });
    if expanded.is_none() || expanded != Vec::<AttentionKind>::deserialize(&layers).ok() {
        fields.insert(TYPES.into(), json!([[layers, 1]]));
    }
}

/// Keys of GPT-Neo's files that are not fields. The `attention_layers` become the `attention_types` when a file is read.
const KEYS: KnownKeys = KnownKeys { followed: &[LAYERS], without_effect: &[], refused: &[] };

impl PretrainedConfig for GptNeoConfig {
    /// Reads a `config.json`. Accepts transformers' general names too, such as `num_hidden_layers`. The file's
    /// `attention_layers` take precedence over its `attention_types`, as in transformers, and are returned as these.
    fn read(file: &Path) -> Result<Self> {
        const GENERAL: [(&str, &str); 2] = [("num_attention_heads", "num_heads"), ("num_hidden_layers", "num_layers")];
        let config = read_fields(file, |fields| {
            rename(fields, &GENERAL);
            follow_layers(fields);
        })?;
        Ok(config)
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

    /// Returns a published size: `gpt-neo-125m`, `gpt-neo-1.3B` or `gpt-neo-2.7B`.
    fn preset(name: &str) -> Result<Self> {
        let sizes =
            [("gpt-neo-125m", (768, 12, 12)), ("gpt-neo-1.3B", (2048, 24, 16)), ("gpt-neo-2.7B", (2560, 32, 20))];
        let (hidden_size, num_layers, num_heads) = preset_sizes(name, &sizes)?;
        let attention_types = vec![(vec![AttentionKind::Global, AttentionKind::Local], num_layers / 2)];
        Ok(Self { hidden_size, num_layers, num_heads, attention_types, ..Self::default() })
    }

    fn unknown_keys(&self) -> Vec<&str> {
        unknown(&KEYS, &self.other)
    }

    fn validate(&self) -> Result<()> {
        if let Some(Value::String(found)) = self.other.get("model_type") {
            check_model_type(found, "gpt_neo")?;
        }
        check_sizes(
            28,
            [
                ("vocab_size", self.vocab_size),
                ("max_position_embeddings", self.max_position_embeddings),
                ("hidden_size", self.hidden_size),
                ("num_layers", self.num_layers),
                ("num_heads", self.num_heads),
                ("intermediate_size", self.inner()),
                ("window_size", self.window_size),
            ],
        )?;
        check_divisible(("hidden_size", self.hidden_size), ("num_heads", self.num_heads))?;
        check_depth("num_layers", self.num_layers)?;
        let kinds: Vec<AttentionKind> = self.kinds().take(self.num_layers + 1).collect();
        check(kinds.len() == self.num_layers, || {
            let blocks = self.num_layers;
            format!("attention_types (or attention_layers) names kinds for other than the {blocks} blocks there are")
        })?;
        // Only a configuration that was not read from a file has this key.
        let layers = self.other.get(LAYERS).filter(|layers| !layers.is_null());
        check(layers.is_none_or(|layers| Vec::<AttentionKind>::deserialize(layers).ok() == Some(kinds)), || {
            format!("{LAYERS} differs from what attention_types means; remove {LAYERS}")
        })?;
        check_epsilon("layer_norm_epsilon", self.layer_norm_epsilon)?;
        check_initializer_range(self.initializer_range)?;
        check_rates([
            ("embed_dropout", self.embed_dropout),
            ("attention_dropout", self.attention_dropout),
            ("resid_dropout", self.resid_dropout),
        ])?;
        check_others(&KEYS, &self.other)?;
        self.activation().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_transformers_is_accounted_for() {
        crate::keys::assert_accounts_for::<GptNeoConfig>("GPTNeoConfig", &KEYS);
    }

    /// As `GPTNeoConfig` of transformers 5.23 reads these files.
    #[test]
    fn attention_layers_take_precedence() {
        use AttentionKind::{Global, Local};
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config.json");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            GptNeoConfig::from_file(&file)
        };
        let both = vec![(vec![Global, Local], 1)];
        for (text, types) in [
            (r#"{"num_layers": 2, "attention_layers": ["local", "local"]}"#, vec![(vec![Local, Local], 1)]),
            (
                r#"{"num_layers": 2, "attention_types": [[["global", "local"], 1]], "attention_layers": ["local", "local"]}"#,
                vec![(vec![Local, Local], 1)],
            ),
            (
                r#"{"num_layers": 2, "attention_types": [[["global", "local"], 2]], "attention_layers": ["local", "global"]}"#,
                vec![(vec![Local, Global], 1)],
            ),
            (
                r#"{"num_layers": 2, "attention_types": null, "attention_layers": ["local", "global"]}"#,
                vec![(vec![Local, Global], 1)],
            ),
            (
                r#"{"num_layers": 2, "attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"]}"#,
                both.clone(),
            ),
            (
                r#"{"num_layers": 2, "attention_types": [[["global", "local"], 1]], "attention_layers": null}"#,
                both.clone(),
            ),
        ] {
            let config = read(text).unwrap();
            assert_eq!(config.attention_types, types, "{text}");
            assert!(!config.other.contains_key("attention_layers"), "{text}");
        }
        assert_eq!(read(r#"{"num_layers": 24, "attention_types": null}"#).unwrap().kinds().count(), 24);
        for (text, word) in [
            (r#"{"num_layers": 4}"#, "attention_types (or attention_layers)"),
            (r#"{"num_layers": 2, "attention_layers": ["global"]}"#, "attention_layers"),
            (r#"{"num_layers": 2, "attention_types": [[["global"], 5]]}"#, "attention_types"),
            (r#"{"num_layers": 1, "attention_layers": ["sideways"]}"#, "sideways"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains("config.json") && message.contains(word), "{text}: {message}");
        }

        let other = [("attention_layers".to_owned(), json!(["local", "local"]))].into_iter().collect();
        let stale = GptNeoConfig { num_layers: 2, attention_types: both, other, ..GptNeoConfig::default() };
        let message = stale.validate().unwrap_err().to_string();
        assert!(message.contains("attention_layers differs"), "{message}");
    }

    #[test]
    fn presets_are_possible() {
        for name in ["gpt-neo-125m", "gpt-neo-1.3B", "gpt-neo-2.7B"] {
            let config = GptNeoConfig::preset(name).unwrap();
            config.validate().unwrap();
            assert_eq!(config.kinds().filter(|kind| *kind == AttentionKind::Local).count(), config.num_layers / 2);
        }
        assert!(GptNeoConfig::preset("gpt-neo").unwrap_err().to_string().contains("gpt-neo-1.3B"));
    }

    #[test]
    fn impossible_ones_are_refused() {
        let base = GptNeoConfig::default();
        let message = |config: GptNeoConfig| config.validate().unwrap_err().to_string();
        assert!(message(GptNeoConfig { num_heads: 7, ..base.clone() }).contains("not divisible"));
        assert!(message(GptNeoConfig { num_layers: 23, ..base.clone() }).contains("attention_types"));
        let types = vec![(vec![AttentionKind::Local], usize::MAX)];
        assert!(message(GptNeoConfig { attention_types: types, num_layers: 0, ..base.clone() }).contains("num_layers"));
        assert!(message(GptNeoConfig { window_size: 0, ..base }).contains("window_size"));
    }
}
