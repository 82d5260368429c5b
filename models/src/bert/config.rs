use grove_files::{FileError, KnownKeys, RefusedKey, read_json};
use grove_layers::Activation;
use grove_weights::TensorFiles;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

use super::{Family, names::masked_lm_is_tied};
use crate::{
    checks::{check, check_depth, check_divisible, check_epsilon, check_initializer_range, check_rates, check_sizes},
    config_keys::{REMOVE, check_others, unknown},
    error::{ModelError, Result, invalid},
    pretrained::PretrainedConfig,
    problem_type::{KNOWN, ProblemType},
};

/// Configuration of a BERT, RoBERTa or DistilBERT: the fields of BERT's published `config.json`, with the same names.
/// [`Family`] handles the other families' names. Fields that are absent from a file default to the values of BERT base.
///
/// ```
/// use grove_models::{BertConfig, PretrainedConfig};
/// assert_eq!(BertConfig::preset("bert-base-uncased")?.hidden_size, 768);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BertConfig {
    /// Model family.
    pub model_type: Family,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Hidden size: the width of the hidden states.
    pub hidden_size: usize,
    /// Number of layers.
    pub num_hidden_layers: usize,
    /// Number of attention heads in a layer; divides `hidden_size`.
    pub num_attention_heads: usize,
    /// Hidden width of the feed-forward layers.
    pub intermediate_size: usize,
    /// Activation of the feed-forward layers, by its name in transformers.
    pub hidden_act: String,
    /// Dropout rate of the embeddings and of each residual branch in training.
    pub hidden_dropout_prob: f64,
    /// Dropout rate of the attention weights in training.
    pub attention_probs_dropout_prob: f64,
    /// Dropout rate before a classifier in training; `None` means `hidden_dropout_prob`.
    pub classifier_dropout: Option<f64>,
    /// Number of position embeddings. RoBERTa's maximum sequence length is smaller: [`positions`](Self::positions).
    pub max_position_embeddings: usize,
    /// Number of token types (segments), such as first and second text; 0 for DistilBERT, which has no such embedding.
    pub type_vocab_size: usize,
    /// Standard deviation of initial weights.
    pub initializer_range: f64,
    /// Added to the variance in layer norms for numerical stability.
    pub layer_norm_eps: f64,
    /// Padding token.
    pub pad_token_id: u32,
    /// If true, the masked language model's output layer is tied to the token embedding.
    pub tie_word_embeddings: bool,
    /// Problem type of a sequence classifier: `single_label_classification`, `multi_label_classification` or
    /// `regression`. `None` means regression if there is one label, else single-label classification.
    pub problem_type: Option<String>,
    /// Class names.
    #[serde(rename = "id2label", with = "crate::labels")]
    pub labels: Vec<String>,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for BertConfig {
    /// BERT base, uncased.
    fn default() -> Self {
        Self {
            model_type: Family::Bert,
            vocab_size: 30522,
            hidden_size: 768,
            num_hidden_layers: 12,
            num_attention_heads: 12,
            intermediate_size: 3072,
            hidden_act: "gelu".into(),
            hidden_dropout_prob: 0.1,
            attention_probs_dropout_prob: 0.1,
            classifier_dropout: None,
            max_position_embeddings: 512,
            type_vocab_size: 2,
            initializer_range: 0.02,
            layer_norm_eps: 1e-12,
            pad_token_id: 0,
            tie_word_embeddings: true,
            problem_type: None,
            labels: vec!["LABEL_0".into(), "LABEL_1".into()],
            other: Map::new(),
        }
    }
}

impl BertConfig {
    /// Returns the maximum sequence length. RoBERTa's positions begin after `pad_token_id`.
    pub fn positions(&self) -> usize {
        self.max_position_embeddings.saturating_sub(self.first_position())
    }

    /// Returns the dropout rate before a classifier in training.
    pub fn classifier_dropout(&self) -> f64 {
        self.classifier_dropout.unwrap_or(self.hidden_dropout_prob)
    }

    /// Returns the activation of the feed-forward layers.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the name is unknown.
    pub fn activation(&self) -> Result<Activation> {
        self.hidden_act.parse().or_else(invalid)
    }

    /// Returns the problem type of a sequence classifier.
    ///
    /// # Errors
    /// [`ModelError::Config`] if `problem_type` is unknown.
    pub fn problem(&self) -> Result<ProblemType> {
        Ok(ProblemType::trained(self.named_problem()?, self.labels.len()))
    }

    /// Returns the problem type that the configuration names.
    pub(crate) fn named_problem(&self) -> Result<Option<ProblemType>> {
        let Some(name) = &self.problem_type else { return Ok(None) };
        match ProblemType::named(name) {
            Some(problem) => Ok(Some(problem)),
            None => invalid(format!("problem_type is '{name}'; known are {KNOWN}")),
        }
    }
}

/// Reason of keys of BERT's original program.
const ORIGINAL: &str = "of the original program; transformers' class does not read it";

/// Keys of the families' files that are not fields.
const KEYS: KnownKeys = KnownKeys {
    followed: &["qa_dropout"],
    without_effect: &[
        ("bos_token_id", "of the tokenizer"),
        ("eos_token_id", "of the tokenizer"),
        ("sinusoidal_pos_embds", "initial weights, and the file has its own"),
        ("tie_weights_", "tie_word_embeddings counts"),
        ("directionality", ORIGINAL),
        ("pooler_fc_size", ORIGINAL),
        ("pooler_num_attention_heads", ORIGINAL),
        ("pooler_num_fc_layers", ORIGINAL),
        ("pooler_size_per_head", ORIGINAL),
        ("pooler_type", ORIGINAL),
    ],
    refused: &[
        RefusedKey { key: "position_embedding_type", neutral: &["\"absolute\""], instead: REMOVE },
        RefusedKey { key: "is_decoder", neutral: &["false"], instead: REMOVE },
    ],
};

impl PretrainedConfig for BertConfig {
    /// Reads the `config.json` beside the weights. If the checkpoint contains an output layer that differs from the
    /// token embedding, the two are not tied, whatever the file says.
    fn of(model: impl AsRef<Path>, checkpoint: &TensorFiles) -> Result<Self> {
        let config = Self::beside(model)?;
        Ok(Self { tie_word_embeddings: masked_lm_is_tied(&config, checkpoint)?, ..config })
    }

    fn read(file: &Path) -> Result<Self> {
        Ok(Self::from_json(read_json(file)?).map_err(|error| FileError::json(file, error.to_string()))?)
    }

    /// Returns a published size: `tiny`, `mini`, `small` or `medium` ("Well-Read Students Learn Better", Turc et al.,
    /// 2019), or `base` or `large` (Devlin et al., 2019), as `bert-{size}-uncased`, `bert-{size}-cased`, or the size
    /// alone (uncased). Also `roberta-base`, `roberta-large` and `distilbert-base-{uncased,cased}`.
    fn preset(name: &str) -> Result<Self> {
        let unknown = || {
            let known = "tiny, mini, small, medium, base, large, bert-SIZE-uncased, bert-SIZE-cased, roberta-base, \
                         roberta-large, distilbert-base-uncased, distilbert-base-cased";
            ModelError::UnknownPreset { name: name.into(), known: known.into() }
        };
        let (family, rest) = match name.split_once('-') {
            Some(("bert", rest)) => (Family::Bert, rest),
            Some(("roberta", rest)) => (Family::Roberta, rest),
            Some(("distilbert", rest)) => (Family::DistilBert, rest),
            _ => (Family::Bert, name),
        };
        let (size, cased) = match rest.split_once('-') {
            None => (rest, false),
            Some((size, "uncased")) if family != Family::Roberta => (size, false),
            Some((size, "cased")) if family != Family::Roberta => (size, true),
            Some(_) => return Err(unknown()),
        };
        let (hidden_size, num_hidden_layers) = match (family, size) {
            (Family::Bert, "tiny") => (128, 2),
            (Family::Bert, "mini") => (256, 4),
            (Family::Bert, "small") => (512, 4),
            (Family::Bert, "medium") => (512, 8),
            (Family::Bert | Family::Roberta, "base") => (768, 12),
            (Family::Bert | Family::Roberta, "large") => (1024, 24),
            (Family::DistilBert, "base") => (768, 6),
            _ => return Err(unknown()),
        };
        let base = family.base();
        Ok(Self {
            hidden_size,
            num_hidden_layers,
            num_attention_heads: hidden_size / 64,
            intermediate_size: 4 * hidden_size,
            vocab_size: if cased { 28996 } else { base.vocab_size },
            ..base
        })
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
                ("num_hidden_layers", self.num_hidden_layers),
                ("num_attention_heads", self.num_attention_heads),
                ("intermediate_size", self.intermediate_size),
                ("max_position_embeddings", self.max_position_embeddings),
                ("the number of labels", self.labels.len()),
            ],
        )?;
        let (types, family) = (self.type_vocab_size, self.model_type);
        check(types <= 1 << 28, || format!("type_vocab_size is {types}; it must be at most 2^28"))?;
        check((types == 0) == family.is_distilbert(), || {
            format!("type_vocab_size is {types}, which is impossible for {}", family.name())
        })?;
        check(self.positions() > 0, || {
            let (positions, start) = (self.max_position_embeddings, u64::from(self.pad_token_id) + 1);
            format!(
                "max_position_embeddings is {positions}, but RoBERTa's positions start at pad_token_id + 1, {start}"
            )
        })?;
        check_divisible(("hidden_size", self.hidden_size), ("num_attention_heads", self.num_attention_heads))?;
        check_depth("num_hidden_layers", self.num_hidden_layers)?;
        check_epsilon("layer_norm_eps", self.layer_norm_eps)?;
        check_initializer_range(self.initializer_range)?;
        check_rates([
            ("hidden_dropout_prob", self.hidden_dropout_prob),
            ("attention_probs_dropout_prob", self.attention_probs_dropout_prob),
            ("classifier_dropout", self.classifier_dropout()),
        ])?;
        check_others(&KEYS, &self.other)?;
        self.activation()?;
        self.problem().map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(config: &BertConfig) -> String {
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn every_key_of_transformers_is_accounted_for() {
        for (class, family) in [
            ("BertConfig", "bert"),
            ("RobertaConfig", "roberta"),
            ("XLMRobertaConfig", "xlm-roberta"),
            ("CamembertConfig", "camembert"),
            ("DistilBertConfig", "distilbert"),
        ] {
            let read = |mut fields: Map<String, Value>| {
                fields.entry("model_type").or_insert_with(|| family.into());
                BertConfig::from_json(fields).map(|config| config.to_json())
            };
            crate::keys::assert_accounts_for_as(class, &KEYS, read);
        }
    }

    /// transformers' defaults of each class. RoBERTa's positions depend on them.
    #[test]
    fn defaults_match_the_family() {
        let read =
            |family: &str| BertConfig::from_json(Map::from_iter([("model_type".to_owned(), family.into())])).unwrap();
        let roberta = read("roberta");
        assert_eq!((roberta.vocab_size, roberta.pad_token_id, roberta.first_position()), (50265, 1, 2));
        for name in ["xlm-roberta", "camembert"] {
            let config = read(name);
            assert_eq!((config.vocab_size, config.pad_token_id, config.positions()), (30522, 1, 510), "{name}");
            assert_eq!(config.to_json()["model_type"], name);
        }
        assert_eq!(read("bert").first_position(), 0);
    }

    #[test]
    fn presets_are_possible() {
        for name in ["tiny", "mini", "bert-small-uncased", "medium", "bert-base-cased", "large", "roberta-large"] {
            BertConfig::preset(name).unwrap().validate().unwrap();
        }
        let distil = BertConfig::preset("distilbert-base-uncased").unwrap();
        distil.validate().unwrap();
        assert_eq!((distil.num_hidden_layers, distil.positions()), (6, 512));
        assert_eq!(BertConfig::preset("roberta-base").unwrap().positions(), 512);
        for name in ["huge", "roberta-base-cased", "distilbert-large", "bert-base-german", "gpt2"] {
            assert!(BertConfig::preset(name).unwrap_err().to_string().contains("roberta-base"), "{name}");
        }
    }

    #[test]
    fn impossible_ones_are_refused() {
        let base = BertConfig::default();
        let with = |field: &str, value: Value| BertConfig {
            other: [(field.to_owned(), value)].into_iter().collect(),
            ..base.clone()
        };
        assert!(message(&BertConfig { num_attention_heads: 7, ..base.clone() }).contains("not divisible"));
        assert!(message(&BertConfig { hidden_size: 1 << 60, ..base.clone() }).contains("hidden_size"));
        assert!(message(&BertConfig { labels: vec![], ..base.clone() }).contains("labels"));
        assert!(message(&BertConfig { type_vocab_size: 0, ..base.clone() }).contains("impossible for bert"));
        assert!(message(&BertConfig { hidden_act: "maxout".into(), ..base.clone() }).contains("maxout"));
        assert!(message(&BertConfig { problem_type: Some("rank".into()), ..base.clone() }).contains("'rank'"));
        assert!(message(&with("position_embedding_type", "relative_key".into())).contains("relative_key"));
        assert!(message(&with("is_decoder", true.into())).contains("is_decoder is true"));
        assert!(message(&with("add_cross_attention", true.into())).contains("add_cross_attention is true"));
        assert!(message(&with("quantization_config", serde_json::json!({"bits": 4}))).contains("quantization_config"));
        with("chunk_size_feed_forward", 16.into()).validate().unwrap();
        let roberta = BertConfig { model_type: Family::Roberta, pad_token_id: u32::MAX, ..base };
        assert!(message(&roberta).contains("pad_token_id + 1"));
    }
}
