//! The fields of a `config.json` that belong to a classifier.

use serde_json::{Map, Value};

use crate::{
    checks::check_sizes,
    error::{Result, invalid},
    labels,
    pretrained::class_name,
    problem_type::ProblemType,
};

/// Suffix of transformers' class names.
pub(super) const CLASS: &str = "ForSequenceClassification";

/// Labels, problem type and padding token.
pub(super) struct Fields {
    pub labels: Vec<String>,
    pub problem_type: Option<ProblemType>,
    pub pad_token_id: Option<u32>,
}

impl Fields {
    /// Reads the fields of a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) naming the field.
    pub fn of(fields: &Map<String, Value>) -> Result<Self> {
        let labels = labels::of_fields(fields)?;
        check_sizes(20, [("the number of labels", labels.len())])?;
        let pad_token_id = match fields.get("pad_token_id") {
            None | Some(Value::Null) => None,
            // Old files have -1 for no token.
            Some(Value::Number(id)) if id.is_i64() => id.as_i64().and_then(|id| u32::try_from(id).ok()),
            Some(other) => return invalid(format!("pad_token_id is {other}, which is not a token")),
        };
        Ok(Self { labels, problem_type: ProblemType::named_in(fields)?, pad_token_id })
    }

    /// Writes the fields into those of a `config.json`.
    pub fn write(&self, fields: &mut Map<String, Value>) {
        let names: Value = self.labels.iter().enumerate().map(|(i, label)| (i.to_string(), label.as_str())).collect();
        fields.remove("num_labels");
        fields.insert("id2label".into(), names);
        fields.insert("label2id".into(), labels::indices(&self.labels));
        if let Some(problem) = self.problem_type {
            fields.insert("problem_type".into(), problem.name().into());
        }
    }
}

/// Checks the fields of a classifier, if a `config.json` names one.
pub(crate) fn check_fields(fields: &Map<String, Value>) -> Result<()> {
    if class_name(fields).is_some_and(|class| class.ends_with(CLASS)) { Fields::of(fields).map(drop) } else { Ok(()) }
}
