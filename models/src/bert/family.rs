//! Names of fields and tensors in the BERT families.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::BertConfig;

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
    /// Returns true for RoBERTa and its variants for other languages.
    pub fn is_roberta(self) -> bool {
        matches!(self, Self::Roberta | Self::XlmRoberta | Self::Camembert)
    }

    /// Returns the `model_type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bert => "bert",
            Self::Roberta => "roberta",
            Self::XlmRoberta => "xlm-roberta",
            Self::Camembert => "camembert",
            Self::DistilBert => "distilbert",
        }
    }

    /// Returns the prefix of transformers' class names.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Bert => "Bert",
            Self::Roberta => "Roberta",
            Self::XlmRoberta => "XLMRoberta",
            Self::Camembert => "Camembert",
            Self::DistilBert => "DistilBert",
        }
    }

    /// Returns the optional prefix of the encoder's tensor names.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            Self::Bert => "bert.",
            Self::Roberta | Self::XlmRoberta | Self::Camembert => "roberta.",
            Self::DistilBert => "distilbert.",
        }
    }
}

impl BertConfig {
    /// Reads the fields of a `config.json`, under the names that its family uses.
    ///
    /// # Errors
    /// Serde's error for a field of the wrong type or for an unknown `model_type`.
    pub fn from_json(mut fields: Map<String, Value>) -> serde_json::Result<Self> {
        let distilbert = fields.get("model_type").is_some_and(|kind| kind == "distilbert");
        if distilbert {
            for (name, theirs) in DISTILBERT_FIELDS {
                if let Some(value) = fields.remove(theirs) {
                    fields.insert(name.into(), value);
                }
            }
            let fixed = [("type_vocab_size", json!(0)), ("layer_norm_eps", json!(1e-12))];
            let defaults = [("num_hidden_layers", json!(6)), ("classifier_dropout", json!(0.2))];
            fields.extend(fixed.map(|(name, value)| (name.to_owned(), value)));
            for (name, value) in defaults {
                fields.entry(name).or_insert(value);
            }
        }
        let roberta: &[(&str, u32)] = match fields.get("model_type").and_then(Value::as_str) {
            Some("roberta") => &[("vocab_size", 50265), ("pad_token_id", 1)],
            Some("xlm-roberta" | "camembert") => &[("pad_token_id", 1)],
            _ => &[],
        };
        for &(name, value) in roberta {
            fields.entry(name).or_insert_with(|| value.into());
        }
        let count = if fields.contains_key("id2label") { None } else { fields.remove("num_labels") };
        if let Some(count) = count.and_then(|count| count.as_u64()).filter(|&count| count <= 1 << 20) {
            let labels: Vec<String> = (0..count).map(|i| format!("LABEL_{i}")).collect();
            fields.insert("id2label".into(), labels.into());
        }
        // Older files lack a field or contain null instead.
        fields.retain(|name, value| !value.is_null() || name == "classifier_dropout");
        serde_json::from_value(Value::Object(fields))
    }

    /// Returns the fields of a `config.json`, under the names that the family uses.
    pub fn to_json(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else {
            unreachable!("a struct with named fields is an object");
        };
        if self.model_type == Family::DistilBert {
            for (name, theirs) in DISTILBERT_FIELDS {
                if let Some(value) = fields.remove(name) {
                    fields.insert(theirs.into(), value);
                }
            }
            fields.retain(|name, _| !["type_vocab_size", "layer_norm_eps"].contains(&name.as_str()));
        }
        let numbers = self.labels.iter().enumerate().map(|(i, label)| (label.clone(), Value::from(i))).collect();
        fields.insert("label2id".into(), Value::Object(numbers));
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
        assert!(BertConfig::from_json(object(json!({"model_type": "gpt2"}))).is_err());
    }
}
