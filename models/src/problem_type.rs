//! The `problem_type` of classifiers.

use serde_json::{Map, Value};

use crate::error::{Result, invalid};

/// Problem type of a text or image classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemType {
    /// Single-label classification: probabilities sum to 1.
    SingleLabel,
    /// Multi-label classification: each label has an independent probability.
    MultiLabel,
    /// Regression: each label is a predicted value.
    Regression,
}

/// transformers' names.
const NAMES: [(&str, ProblemType); 3] = [
    ("single_label_classification", ProblemType::SingleLabel),
    ("multi_label_classification", ProblemType::MultiLabel),
    ("regression", ProblemType::Regression),
];

/// Names, for error messages.
pub(crate) const KNOWN: &str = "single_label_classification, multi_label_classification and regression";

impl ProblemType {
    /// Name in transformers' `config.json`.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Returns the type with a transformers name; `None` if the name is unknown.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Returns the problem that a classifier of texts is trained for, given the type `named` in its configuration, if any:
    /// a single label means regression.
    pub(crate) fn trained(named: Option<Self>, labels: usize) -> Self {
        named.unwrap_or(if labels == 1 { Self::Regression } else { Self::SingleLabel })
    }

    /// Returns the kind of a classifier's scores, given the type `named` in its configuration, if any. A single label
    /// is scored with a probability unless the type is regression, as in transformers.
    pub(crate) fn scored(named: Option<Self>, labels: usize) -> Self {
        match named {
            Some(Self::Regression) => Self::Regression,
            _ if labels == 1 => Self::MultiLabel,
            named => named.unwrap_or(Self::SingleLabel),
        }
    }

    /// Returns the kind of scores as [`scored`](Self::scored) does, from the fields of a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if `problem_type` is unknown.
    pub(crate) fn of_fields(fields: &Map<String, Value>, labels: usize) -> Result<Self> {
        Ok(Self::scored(Self::named_in(fields)?, labels))
    }

    /// Returns the type that the fields of a `config.json` name.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if `problem_type` is unknown.
    pub(crate) fn named_in(fields: &Map<String, Value>) -> Result<Option<Self>> {
        let Some(value) = fields.get("problem_type").filter(|value| !value.is_null()) else { return Ok(None) };
        match value.as_str().and_then(Self::named) {
            Some(named) => Ok(Some(named)),
            None => invalid(format!("problem_type is {value}; known are {KNOWN}")),
        }
    }
}
