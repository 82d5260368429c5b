//! Classes with their probabilities.

use burn::tensor::Tensor;
use grove_backend::Backend;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::{
    error::{ModelError, Result},
    rank::largest,
};

/// What the logits of a classifier stand for: the `problem_type` of a `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scores {
    /// Each example has one of the classes: probabilities that sum to 1.
    OneClass,
    /// Each example has any number of the classes: a probability of each.
    AnyClasses,
    /// They are numbers that are predicted.
    Numbers,
}

impl Scores {
    /// Those of a configuration of images: its fields, and the number of its classes. A single class is one that an example has or
    /// has not, as in transformers.
    ///
    /// # Errors
    /// [`ModelError::Config`] if `problem_type` is unknown.
    pub(crate) fn of(fields: &Map<String, Value>, classes: usize) -> Result<Self> {
        match fields.get("problem_type").filter(|value| !value.is_null()) {
            Some(value) => match value.as_str() {
                Some("regression") => Ok(Self::Numbers),
                Some("multi_label_classification") => Ok(Self::AnyClasses),
                Some("single_label_classification") if classes == 1 => Ok(Self::AnyClasses),
                Some("single_label_classification") => Ok(Self::OneClass),
                _ => {
                    let known = "single_label_classification, multi_label_classification and regression";
                    Err(ModelError::Config { reason: format!("problem_type is {value}; known are {known}") })
                }
            },
            None if classes == 1 => Ok(Self::AnyClasses),
            None => Ok(Self::OneClass),
        }
    }

    /// The scores of the classes of an example.
    fn of_logits(self, logits: &[f32]) -> Vec<f32> {
        match self {
            Self::OneClass => {
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
                logits.iter().map(|logit| (logit - most).exp() / sum).collect()
            }
            Self::AnyClasses => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
            Self::Numbers => logits.to_vec(),
        }
    }
}

/// A class of an example and its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Its index.
    pub class: usize,
    /// Its name.
    pub label: String,
    /// Its probability, from 0 to 1; or the number that is predicted, where the model predicts numbers.
    pub probability: f32,
}

/// Returns the most likely classes of each example, the most likely first.
///
/// - logits: `[b, classes]`
/// - labels: the classes' names, as many
/// - `k`: how many of each, or all if there are fewer
pub fn predictions<B: Backend>(logits: Tensor<B, 2>, labels: &[String], k: usize) -> Vec<Vec<Prediction>> {
    scored(logits, labels, k, Scores::OneClass)
}

/// As [`predictions`], with other scores than the probabilities of one class.
pub fn scored<B: Backend>(logits: Tensor<B, 2>, labels: &[String], k: usize, scores: Scores) -> Vec<Vec<Prediction>> {
    let classes = logits.dims()[1];
    let logits: Vec<f32> = logits.into_data().iter().collect();
    let row = |logits: &[f32]| {
        let scores = scores.of_logits(logits);
        let prediction = |class: usize| Prediction {
            class,
            label: labels.get(class).cloned().unwrap_or_else(|| class.to_string()),
            probability: scores[class],
        };
        largest(logits, k).into_iter().map(prediction).collect()
    };
    logits.chunks(classes.max(1)).map(row).collect()
}
