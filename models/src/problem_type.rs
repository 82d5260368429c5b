//! The `problem_type` of classifiers.

use serde_json::{Map, Value};

use crate::error::{ModelError, Result};

/// Problem type of a classifier of texts or images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemType {
    /// Each example has one of the labels: probabilities sum to 1.
    SingleLabel,
    /// Each example has any number of the labels: each has a probability of its own.
    MultiLabel,
    /// Each label is a number that is to be predicted.
    Regression,
}

/// transformers' names.
const NAMES: [(&str, ProblemType); 3] = [
    ("single_label_classification", ProblemType::SingleLabel),
    ("multi_label_classification", ProblemType::MultiLabel),
    ("regression", ProblemType::Regression),
];

/// The names, for messages.
pub(crate) const KNOWN: &str = "single_label_classification, multi_label_classification and regression";

impl ProblemType {
    /// The type of transformers' name; `None` if there is none.
    pub(crate) fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// The kind of scores that a classifier gives, where its configuration names `self`, or nothing. The score of a single label is a
    /// probability unless it is said to be a regression, as in transformers.
    pub(crate) fn scored(named: Option<Self>, labels: usize) -> Self {
        match named {
            Some(Self::Regression) => Self::Regression,
            _ if labels == 1 => Self::MultiLabel,
            named => named.unwrap_or(Self::SingleLabel),
        }
    }

    /// As [`scored`](Self::scored), from the fields of a `config.json`.
    ///
    /// # Errors
    /// [`ModelError::Config`] if `problem_type` is unknown.
    pub(crate) fn of_fields(fields: &Map<String, Value>, labels: usize) -> Result<Self> {
        let Some(value) = fields.get("problem_type").filter(|value| !value.is_null()) else {
            return Ok(Self::scored(None, labels));
        };
        match value.as_str().and_then(Self::named) {
            Some(named) => Ok(Self::scored(Some(named), labels)),
            None => Err(ModelError::Config { reason: format!("problem_type is {value}; known are {KNOWN}") }),
        }
    }
}
