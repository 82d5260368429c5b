//! Predicted labels and their scores.

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

/// A predicted label of an example. Its JSON form has the keys of transformers' pipelines: `label`, `score`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Index of the class. Skipped in JSON, as in transformers' pipelines.
    #[serde(skip)]
    pub class: usize,
    /// Name of the label.
    pub label: String,
    /// Probability, from 0 to 1. For regression: the predicted value.
    pub score: f32,
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
            score: scores[class],
        };
        largest(logits, k).into_iter().map(prediction).collect()
    };
    logits.chunks(classes.max(1)).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem_type::ProblemType;
    use burn_flex::Flex;
    use serde_json::json;

    #[test]
    fn the_likeliest_come_first() {
        let logits = Tensor::<Flex, 2>::from_data([[0.0, 3f32.ln(), 0.0], [5.0, 5.0, -1e9]], &Default::default());
        let labels = ["a", "b", "c"].map(str::to_owned);
        let found = predictions(logits, &labels, 2);
        let short = |row: &[Prediction]| row.iter().map(|p| (p.class, (p.score * 100.0).round())).collect::<Vec<_>>();
        assert_eq!(found[0][0].label, "b");
        assert_eq!((short(&found[0]), short(&found[1])), (vec![(1, 60.0), (0, 20.0)], vec![(0, 50.0), (1, 50.0)]));
    }

    /// Expected: the scores of transformers' image-classification pipeline.
    #[test]
    fn the_problem_type_determines_the_scores() {
        let scores = |problem: serde_json::Value, classes: usize| {
            let fields = json!({ "problem_type": problem });
            ProblemType::of_fields(fields.as_object().unwrap(), classes)
        };
        let first = |kind: ProblemType| {
            let logits = Tensor::<Flex, 2>::from_data([[3f32.ln(), 0.0]], &Default::default());
            let found = scored(logits, &[], 2, kind);
            found[0].iter().map(|p| (p.score * 1000.0).round()).collect::<Vec<_>>()
        };
        assert_eq!(first(scores(json!(null), 2).unwrap()), [750.0, 250.0]);
        assert_eq!(first(scores(json!("multi_label_classification"), 2).unwrap()), [750.0, 500.0]);
        assert_eq!(first(scores(json!("regression"), 2).unwrap()), [1099.0, 0.0]);
        assert_eq!(scores(json!(null), 1).unwrap(), ProblemType::MultiLabel);
        let error = scores(json!("ranking"), 2).unwrap_err().to_string();
        assert!(error.contains("problem_type is \"ranking\""), "{error}");
    }
}
