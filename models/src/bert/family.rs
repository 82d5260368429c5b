//! Differences between the BERT families: names of fields and tensors, sizes, defaults and heads.

use grove_layers::Activation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::BertConfig;
use crate::labels::{indices, numbered, unnamed};

/// Model family, the `model_type` of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Devlin et al., 2019.
    #[default]
    Bert,
    /// Liu et al., 2019. Its positions and names differ from BERT's.
    Roberta,
    /// RoBERTa in a hundred languages (Conneau et al., 2020).
    #[serde(rename = "xlm-roberta")]
    XlmRoberta,
    /// RoBERTa in French (Martin et al., 2020).
    Camembert,
    /// Sanh et al., 2019: half the layers, no token types, no pooler.
    DistilBert,
}

/// BERT's names of fields, and DistilBERT's.
const DISTILBERT_FIELDS: [(&str, &str); 8] = [
    ("hidden_size", "dim"),
    ("num_hidden_layers", "n_layers"),
    ("num_attention_heads", "n_heads"),
    ("intermediate_size", "hidden_dim"),
    ("hidden_act", "activation"),
    ("hidden_dropout_prob", "dropout"),
    ("attention_probs_dropout_prob", "attention_dropout"),
    ("classifier_dropout", "seq_classif_dropout"),
];

impl Family {
    /// Returns the `model_type`, the prefix of transformers' class names, and that of tensor names.
    const fn names(self) -> [&'static str; 3] {
        match self {
            Self::Bert => ["bert", "Bert", "bert."],
            Self::Roberta => ["roberta", "Roberta", "roberta."],
            Self::XlmRoberta => ["xlm-roberta", "XLMRoberta", "roberta."],
            Self::Camembert => ["camembert", "Camembert", "roberta."],
            Self::DistilBert => ["distilbert", "DistilBert", "distilbert."],
        }
    }

    /// Returns the `model_type`.
    pub fn name(self) -> &'static str {
        self.names()[0]
    }

    /// Returns the prefix of transformers' class names.
    pub(super) fn class(self) -> &'static str {
        self.names()[1]
    }

    /// Returns the optional prefix of the encoder's tensor names.
    pub(super) fn prefix(self) -> &'static str {
        self.names()[2]
    }

    /// Returns true for RoBERTa and its variants for other languages.
    pub fn is_roberta(self) -> bool {
        matches!(self, Self::Roberta | Self::XlmRoberta | Self::Camembert)
    }

    /// Returns true for DistilBERT.
    pub(super) fn is_distilbert(self) -> bool {
        self == Self::DistilBert
    }

    /// Returns the published names of a layer's six linear layers and two layer norms, in the order of
    /// [`LAYER_PATHS`](super::names::LAYER_PATHS).
    pub(super) fn layer_names(self) -> [&'static str; 8] {
        match self {
            Self::Bert | Self::Roberta | Self::XlmRoberta | Self::Camembert => [
                "encoder.layer.{i}.attention.self.query",
                "encoder.layer.{i}.attention.self.key",
                "encoder.layer.{i}.attention.self.value",
                "encoder.layer.{i}.attention.output.dense",
                "encoder.layer.{i}.intermediate.dense",
                "encoder.layer.{i}.output.dense",
                "encoder.layer.{i}.attention.output.LayerNorm",
                "encoder.layer.{i}.output.LayerNorm",
            ],
            Self::DistilBert => [
                "transformer.layer.{i}.attention.q_lin",
                "transformer.layer.{i}.attention.k_lin",
                "transformer.layer.{i}.attention.v_lin",
                "transformer.layer.{i}.attention.out_lin",
                "transformer.layer.{i}.ffn.lin1",
                "transformer.layer.{i}.ffn.lin2",
                "transformer.layer.{i}.sa_layer_norm",
                "transformer.layer.{i}.output_layer_norm",
            ],
        }
    }

    /// Returns the published names of the masked-language-modelling head: the linear layer, the layer norm, the output
    /// layer and its bias.
    pub(super) fn masked_lm_names(self) -> [&'static str; 4] {
        match self {
            Self::Bert => [
                "cls.predictions.transform.dense",
                "cls.predictions.transform.LayerNorm",
                "cls.predictions.decoder",
                "cls.predictions.bias",
            ],
            Self::Roberta | Self::XlmRoberta | Self::Camembert => {
                ["lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"]
            }
            Self::DistilBert => ["vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"],
        }
    }

    /// Returns the published names of the sequence-classification head: the linear layer that replaces the pooler, if
    /// there is one, and the output layer.
    pub(super) fn sequence_head_names(self) -> (Option<&'static str>, &'static str) {
        match self {
            Self::Bert => (None, "classifier"),
            Self::Roberta | Self::XlmRoberta | Self::Camembert => (Some("classifier.dense"), "classifier.out_proj"),
            Self::DistilBert => (Some("pre_classifier"), "classifier"),
        }
    }

    /// Returns the published names of the multiple-choice head, as
    /// [`sequence_head_names`](Self::sequence_head_names) does.
    pub(super) fn choice_head_names(self) -> (Option<&'static str>, &'static str) {
        (self.is_distilbert().then_some("pre_classifier"), "classifier")
    }

    /// Returns the activation of the masked-language-modelling head, given that of the layers. RoBERTa's is always GELU.
    pub(super) fn masked_lm_activation(self, of_layers: Activation) -> Activation {
        if self.is_roberta() { Activation::Gelu } else { of_layers }
    }

    /// Returns the configuration of the published base model, uncased.
    pub(super) fn base(self) -> BertConfig {
        let base = BertConfig { model_type: self, ..BertConfig::default() };
        match self {
            Self::Bert => base,
            Self::Roberta | Self::XlmRoberta | Self::Camembert => BertConfig {
                vocab_size: 50265,
                max_position_embeddings: 514,
                type_vocab_size: 1,
                layer_norm_eps: 1e-5,
                pad_token_id: 1,
                ..base
            },
            Self::DistilBert => {
                BertConfig { num_hidden_layers: 6, type_vocab_size: 0, classifier_dropout: Some(0.2), ..base }
            }
        }
    }

    /// Returns the values of transformers' class for fields that a file lacks, where they differ from BERT's.
    fn defaults(self) -> Vec<(&'static str, Value)> {
        match self {
            Self::Bert => vec![],
            Self::Roberta => vec![("vocab_size", json!(50265)), ("pad_token_id", json!(1))],
            Self::XlmRoberta | Self::Camembert => vec![("pad_token_id", json!(1))],
            Self::DistilBert => vec![("num_hidden_layers", json!(6)), ("classifier_dropout", json!(0.2))],
        }
    }
}

impl BertConfig {
    /// Returns the position of the first token.
    pub fn first_position(&self) -> usize {
        if self.model_type.is_roberta() { self.pad_token_id as usize + 1 } else { 0 }
    }

    /// Returns the dropout rate before a token classifier. DistilBERT's `classifier_dropout` (`seq_classif_dropout`)
    /// applies to sequence classifiers only.
    pub(super) fn token_head_dropout(&self) -> f64 {
        if self.model_type.is_distilbert() { self.hidden_dropout_prob } else { self.classifier_dropout() }
    }

    /// Returns the dropout rate before the output layer of question answering, which only DistilBERT has.
    pub(super) fn answer_head_dropout(&self) -> f64 {
        let rate = || self.other.get("qa_dropout").and_then(Value::as_f64).unwrap_or(0.1);
        if self.model_type.is_distilbert() { rate() } else { 0.0 }
    }

    /// Reads the fields of a `config.json`, under the names that its family uses.
    ///
    /// # Errors
    /// Serde's error for a field of the wrong type or for an unknown `model_type`.
    pub fn from_json(mut fields: Map<String, Value>) -> serde_json::Result<Self> {
        let family = match fields.get("model_type") {
            Some(name) if !name.is_null() => Family::deserialize(name)?,
            _ => Family::default(),
        };
        if family.is_distilbert() {
            for (name, theirs) in DISTILBERT_FIELDS {
                if let Some(value) = fields.remove(theirs) {
                    fields.insert(name.into(), value);
                }
            }
            let fixed = [("type_vocab_size", json!(0)), ("layer_norm_eps", json!(1e-12))];
            fields.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
        }
        for (name, value) in family.defaults() {
            fields.entry(name).or_insert(value);
        }
        if let Some(count) = unnamed(&fields).filter(|&count| count <= 1 << 20) {
            fields.insert("id2label".into(), numbered(count).into());
        }
        fields.remove("num_labels");
        // Older files lack a field or contain null instead.
        fields.retain(|name, value| !value.is_null() || name == "classifier_dropout");
        serde_json::from_value(Value::Object(fields))
    }

    /// Returns the fields of a `config.json`, under the names that the family uses.
    pub fn to_json(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else {
            unreachable!("a struct with named fields is an object");
        };
        if self.model_type.is_distilbert() {
            for (name, theirs) in DISTILBERT_FIELDS {
                if let Some(value) = fields.remove(name) {
                    fields.insert(theirs.into(), value);
                }
            }
            fields.retain(|name, _| !["type_vocab_size", "layer_norm_eps"].contains(&name.as_str()));
        }
        fields.insert("label2id".into(), indices(&self.labels));
        fields
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn each_family_has_its_names() {
        let file = json!({"model_type": "distilbert", "dim": 48, "n_heads": 4, "hidden_dim": 96, "sinusoidal_pos_embds": false});
        let config = BertConfig::from_json(object(file)).unwrap();
        assert_eq!((config.hidden_size, config.num_attention_heads, config.intermediate_size), (48, 4, 96));
        assert_eq!((config.num_hidden_layers, config.type_vocab_size), (6, 0));
        let written = config.to_json();
        assert_eq!((&written["dim"], &written["sinusoidal_pos_embds"]), (&json!(48), &json!(false)));
        assert!(!written.contains_key("hidden_size") && !written.contains_key("type_vocab_size"));
        assert_eq!(BertConfig::from_json(written).unwrap().to_json(), config.to_json());
    }

    #[test]
    fn labels_are_found() {
        let named = json!({"id2label": {"1": "good", "0": "bad"}, "label2id": {"good": 1, "bad": 0}});
        let config = BertConfig::from_json(object(named)).unwrap();
        assert_eq!((config.model_type, &*config.labels), (Family::Bert, &["bad".to_owned(), "good".into()][..]));
        assert_eq!(config.to_json()["label2id"], json!({"bad": 0, "good": 1}));
        assert_eq!(BertConfig::from_json(object(json!({"num_labels": 3}))).unwrap().labels.len(), 3);
        // As in transformers, another number of labels counts more than the names.
        let other = json!({"id2label": {"0": "bad", "1": "good"}, "num_labels": 1});
        assert_eq!(BertConfig::from_json(object(other)).unwrap().labels, ["LABEL_0"]);
        assert!(BertConfig::from_json(object(json!({"model_type": "gpt2"}))).is_err());
    }

    #[test]
    fn heads_have_the_dropout_of_their_family() {
        let config = BertConfig { hidden_dropout_prob: 0.3, classifier_dropout: Some(0.4), ..BertConfig::default() };
        assert_eq!((config.token_head_dropout(), config.answer_head_dropout()), (0.4, 0.0));
        let distilbert = BertConfig { model_type: Family::DistilBert, ..config };
        assert_eq!((distilbert.token_head_dropout(), distilbert.answer_head_dropout()), (0.3, 0.1));
        let other = object(json!({"qa_dropout": 0.5}));
        assert_eq!(BertConfig { other, ..distilbert }.answer_head_dropout(), 0.5);
    }
}
