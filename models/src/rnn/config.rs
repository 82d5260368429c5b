use grove_layers::rnn::RnnOptions;
use grove_weights::TensorFiles;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::path::Path;

use super::{RnnKind, names::published_names};
use crate::{
    checks::{check, check_model_type, check_rates, check_sizes},
    config_keys::{NONE, unknown},
    error::{Result, invalid},
    pretrained::PretrainedConfig,
    tied::is_tied,
};

/// Configuration of a recurrent language model. Fields that are absent from a file have the value of [`Default`].
///
/// ```
/// use grove_models::{CausalLm, Pretrained, RnnKind, RnnLm, RnnLmConfig};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let sizes = RnnLmConfig { vocab_size: 16, embedding_size: 8, hidden_size: 8, ..RnnLmConfig::default() };
/// let config = RnnLmConfig { cell: RnnKind::Gru, tie_word_embeddings: true, ..sizes };
/// let model = RnnLm::<B>::init(&config, Key::new(0), &Default::default())?;
/// assert_eq!(model.vocab_size(), 16);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RnnLmConfig {
    /// Model type: `grove_rnn_lm`.
    pub model_type: String,
    /// Kind of recurrent cell.
    pub cell: RnnKind,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Embedding size.
    pub embedding_size: usize,
    /// Hidden size.
    pub hidden_size: usize,
    /// Number of recurrent layers.
    pub num_layers: usize,
    /// Dropout rate after the embedding, between the layers and before the output layer in training.
    pub dropout: f64,
    /// If true, the output layer is tied to the token embedding; both sizes must then be equal.
    pub tie_word_embeddings: bool,
    /// Token that ends a sequence.
    pub eos_token_id: Option<u32>,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for RnnLmConfig {
    /// The defaults of PyTorch's `word_language_model` example on WikiText-2.
    fn default() -> Self {
        Self {
            model_type: "grove_rnn_lm".into(),
            cell: RnnKind::Lstm,
            vocab_size: 33278,
            embedding_size: 200,
            hidden_size: 200,
            num_layers: 2,
            dropout: 0.2,
            tie_word_embeddings: false,
            eos_token_id: None,
            other: Map::new(),
        }
    }
}

impl RnnLmConfig {
    /// Returns the options of the recurrent layers.
    pub(super) fn options(&self) -> RnnOptions {
        RnnOptions { layers: self.num_layers, dropout: self.dropout, ..RnnOptions::default() }
    }
}

impl PretrainedConfig for RnnLmConfig {
    /// Reads the `config.json` beside the weights. If the checkpoint contains an output layer that differs from the
    /// token embedding, the two are not tied, whatever the file says.
    fn of(model: impl AsRef<Path>, checkpoint: &TensorFiles) -> Result<Self> {
        let config = Self::beside(model)?;
        let names = published_names(&Self { tie_word_embeddings: false, ..config.clone() });
        let places = ["encoder.weight", "decoder.weight"];
        Ok(Self { tie_word_embeddings: is_tied(config.tie_word_embeddings, checkpoint, &names, places)?, ..config })
    }

    fn unknown_keys(&self) -> Vec<&str> {
        unknown(&NONE, &self.other)
    }

    fn validate(&self) -> Result<()> {
        check_model_type(&self.model_type, "grove_rnn_lm")?;
        check_layers([self.vocab_size, self.embedding_size, self.hidden_size], self.num_layers, self.dropout)?;
        let (embedding, hidden) = (self.embedding_size, self.hidden_size);
        check(!self.tie_word_embeddings || embedding == hidden, || {
            format!("tie_word_embeddings needs embedding_size, {embedding}, to equal hidden_size, {hidden}")
        })
    }
}

/// Configuration of a recurrent classifier. Fields that are absent from a file have the value of [`Default`].
///
/// ```
/// use grove_models::{Pretrained, RnnClassifier, RnnClassifierConfig};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let sizes = RnnClassifierConfig { vocab_size: 16, embedding_size: 8, hidden_size: 8, ..Default::default() };
/// let config = RnnClassifierConfig { labels: vec!["good".into(), "bad".into(), "neither".into()], ..sizes };
/// let model = RnnClassifier::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = model.pack(&[vec![1, 2, 3], vec![4]])?;
/// assert_eq!(model.forward(&texts, None).dims(), [2, 3]); // logits, [b, classes]
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RnnClassifierConfig {
    /// Model type: `grove_rnn_classifier`.
    pub model_type: String,
    /// Kind of recurrent cell.
    pub cell: RnnKind,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Embedding size.
    pub embedding_size: usize,
    /// Hidden size per direction.
    pub hidden_size: usize,
    /// Number of recurrent layers.
    pub num_layers: usize,
    /// If true, the layers are bidirectional.
    pub bidirectional: bool,
    /// Dropout rate after the embedding, between the layers and before the output layer in training.
    pub dropout: f64,
    /// Class names, `id2label` in files: an object from indices to names, as in transformers, or a list.
    #[serde(rename = "id2label", alias = "labels", with = "crate::labels")]
    pub labels: Vec<String>,
    /// Other fields of the file, which are written back when saving.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl Default for RnnClassifierConfig {
    /// One layer of a bidirectional LSTM, with the sizes of [`RnnLmConfig`] and two classes.
    fn default() -> Self {
        let RnnLmConfig { cell, vocab_size, embedding_size, hidden_size, dropout, .. } = RnnLmConfig::default();
        Self {
            model_type: "grove_rnn_classifier".into(),
            cell,
            vocab_size,
            embedding_size,
            hidden_size,
            num_layers: 1,
            bidirectional: true,
            dropout,
            labels: vec!["LABEL_0".into(), "LABEL_1".into()],
            other: Map::new(),
        }
    }
}

impl RnnClassifierConfig {
    /// Returns the options of the recurrent layers.
    pub(super) fn options(&self) -> RnnOptions {
        let (bidirectional, dropout) = (self.bidirectional, self.dropout);
        RnnOptions { layers: self.num_layers, bidirectional, dropout, ..RnnOptions::default() }
    }

    /// Returns the number of directions.
    pub(super) fn directions(&self) -> usize {
        if self.bidirectional { 2 } else { 1 }
    }
}

/// Checks the fields that both configurations have. `sizes` are those of the vocabulary, the embedding and the state.
fn check_layers(sizes: [usize; 3], num_layers: usize, dropout: f64) -> Result<()> {
    check_sizes(28, ["vocab_size", "embedding_size", "hidden_size"].into_iter().zip(sizes))?;
    check((1..=1000).contains(&num_layers), || format!("num_layers is {num_layers}; it must be between 1 and 1000"))?;
    check_rates([("dropout", dropout)])
}

impl PretrainedConfig for RnnClassifierConfig {
    fn unknown_keys(&self) -> Vec<&str> {
        unknown(&NONE, &self.other)
    }

    fn validate(&self) -> Result<()> {
        check_model_type(&self.model_type, "grove_rnn_classifier")?;
        check_layers([self.vocab_size, self.embedding_size, self.hidden_size], self.num_layers, self.dropout)?;
        let count = self.labels.len();
        check(count >= 2, || format!("id2label has {count} classes; there must be at least two"))?;
        let mut sorted: Vec<&String> = self.labels.iter().collect();
        sorted.sort();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => invalid(format!("id2label has two classes called '{}'", pair[0])),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_possible() {
        RnnLmConfig::default().validate().unwrap();
        RnnClassifierConfig::default().validate().unwrap();
    }

    #[test]
    fn impossible_ones_are_refused() {
        let base = RnnLmConfig::default();
        for (config, expected) in [
            (RnnLmConfig { vocab_size: 1 << 60, ..base.clone() }, "vocab_size"),
            (RnnLmConfig { hidden_size: 0, ..base.clone() }, "hidden_size is 0"),
            (RnnLmConfig { num_layers: usize::MAX, ..base.clone() }, "num_layers"),
            (RnnLmConfig { dropout: f64::NAN, ..base.clone() }, "dropout"),
            (RnnLmConfig { model_type: "gpt2".into(), ..base.clone() }, "model_type is 'gpt2'"),
            (RnnLmConfig { tie_word_embeddings: true, hidden_size: 300, ..base }, "embedding_size, 200"),
        ] {
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        for (labels, expected) in [(vec!["a"], "1 classes"), (vec!["a", "b", "a"], "called 'a'")] {
            let labels = labels.into_iter().map(String::from).collect();
            let config = RnnClassifierConfig { labels, ..RnnClassifierConfig::default() };
            let message = config.validate().unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn labels_are_written_like_transformers() {
        let parse = serde_json::from_str::<RnnClassifierConfig>;
        let labels: Vec<String> = (0..11).map(|i| format!("kind {i}")).collect();
        let config = RnnClassifierConfig { labels, ..RnnClassifierConfig::default() };
        let text = serde_json::to_string(&config).unwrap();
        assert!(text.contains(r#""id2label":{"0":"kind 0","1":"kind 1""#), "{text}");
        assert_eq!(parse(&text).unwrap(), config);
        assert_eq!(parse(r#"{"labels": ["a", "b"]}"#).unwrap().labels, ["a", "b"]);
        let config = parse(r#"{"id2label": {"1": "b", "0": "a"}, "cell": "rnn_relu", "author": "me"}"#).unwrap();
        assert_eq!((&config.labels[..], config.cell), (&["a".to_string(), "b".into()][..], RnnKind::RnnRelu));
        assert_eq!(config.other["author"], "me");
        for (text, expected) in [
            (r#"{"id2label": {"0": "a", "18446744073709551615": "b"}}"#, "2 entries and none for class 1"),
            (r#"{"id2label": "a"}"#, "a list of labels"),
            (r#"{"cell": "transformer"}"#, "transformer"),
        ] {
            let message = parse(text).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
