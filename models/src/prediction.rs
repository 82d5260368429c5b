//! Predicted classes and their probabilities.

use burn::tensor::Tensor;
use grove_backend::Backend;
use serde::Serialize;

use crate::{problem_type::ProblemType, rank::largest};

/// Returns the score of each label of an example.
fn scores(problem: ProblemType, logits: &[f32]) -> Vec<f32> {
    match problem {
        ProblemType::SingleLabel => {
            let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
            logits.iter().map(|logit| (logit - most).exp() / sum).collect()
        }
        ProblemType::MultiLabel => logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).collect(),
        ProblemType::Regression => logits.to_vec(),
    }
}

/// A predicted class of an example, with its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Index of the class.
    pub class: usize,
    /// Name of the class.
    pub label: String,
    /// Probability, from 0 to 1. For regression: the predicted value.
    pub probability: f32,
}

/// Returns the `k` most likely classes of each example, most likely first.
///
/// - logits: `[b, classes]`
/// - labels: the class names, `[classes]`
/// - `k`: number of classes per example; all if there are fewer
pub fn predictions<B: Backend>(logits: Tensor<B, 2>, labels: &[String], k: usize) -> Vec<Vec<Prediction>> {
    scored(logits, labels, k, ProblemType::SingleLabel)
}

/// Returns predictions as [`predictions`] does, with the scores of a problem type.
pub fn scored<B: Backend>(
    logits: Tensor<B, 2>,
    labels: &[String],
    k: usize,
    problem: ProblemType,
) -> Vec<Vec<Prediction>> {
    let classes = logits.dims()[1];
    let logits: Vec<f32> = logits.into_data().iter().collect();
    let row = |logits: &[f32]| {
        let scores = scores(problem, logits);
        let prediction = |class: usize| Prediction {
            class,
            label: labels.get(class).cloned().unwrap_or_else(|| class.to_string()),
            probability: scores[class],
        };
        largest(logits, k).into_iter().map(prediction).collect()
    };
    logits.chunks(classes.max(1)).map(row).collect()
}
