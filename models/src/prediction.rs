//! Classes with their probabilities.

use burn::tensor::Tensor;
use grove_backend::Backend;
use serde::Serialize;

use crate::rank::largest;

/// A class of an example and its probability.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Its index.
    pub class: usize,
    /// Its name.
    pub label: String,
    /// Its probability, from 0 to 1; all classes sum to 1.
    pub probability: f32,
}

/// Returns the most likely classes of each example, the most likely first.
///
/// - logits: `[b, classes]`
/// - labels: the classes' names, as many
/// - `k`: how many of each, or all if there are fewer
pub fn predictions<B: Backend>(logits: Tensor<B, 2>, labels: &[String], k: usize) -> Vec<Vec<Prediction>> {
    let classes = logits.dims()[1];
    let logits: Vec<f32> = logits.into_data().iter().collect();
    let row = |logits: &[f32]| {
        let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
        let prediction = |class: usize| Prediction {
            class,
            label: labels.get(class).cloned().unwrap_or_else(|| class.to_string()),
            probability: (logits[class] - most).exp() / sum,
        };
        largest(logits, k).into_iter().map(prediction).collect()
    };
    logits.chunks(classes.max(1)).map(row).collect()
}
