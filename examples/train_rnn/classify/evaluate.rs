//! How often a classifier is right.

use grove::{models::RnnClassifier, prelude::*};

use super::data::Example;
use crate::common::{Exit, failure};

/// What an evaluation found.
pub struct Score {
    /// Mean loss of a text, in nats.
    pub loss: f64,
    /// Texts of each class that were recognised, and all of it.
    pub classes: Vec<[usize; 2]>,
}

impl Score {
    /// The part of all texts that were recognised.
    pub fn accuracy(&self) -> f64 {
        let [right, all] = self.classes.iter().fold([0, 0], |sum, class| [sum[0] + class[0], sum[1] + class[1]]);
        right as f64 / all as f64
    }

    /// A line for each class.
    pub fn table(&self, labels: &[String]) -> String {
        let width = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        let line = |(label, [right, all]): (&String, &[usize; 2])| {
            let percent = 100.0 * *right as f64 / (*all).max(1) as f64;
            format!("{label:<width$}  {percent:5.1} %  ({right} of {all} recognised)")
        };
        labels.iter().zip(&self.classes).map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Reads all examples, so many at once.
pub fn score<B: Backend>(model: &RnnClassifier<B>, examples: &[Example], batch_size: usize) -> Result<Score, Exit> {
    let mut order: Vec<&Example> = examples.iter().collect();
    // Of similar length together: packed batches then have fewer steps.
    order.sort_by_key(|example| example.ids.len());
    let mut score = Score { loss: 0.0, classes: vec![[0, 0]; model.config.labels.len()] };
    for batch in order.chunks(batch_size) {
        let texts: Vec<Vec<u32>> = batch.iter().map(|example| example.ids.clone()).collect();
        let logits = model.forward(&model.pack(&texts).map_err(failure)?, None).into_data();
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        for (logits, example) in logits.chunks(score.classes.len()).zip(batch) {
            let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
            score.loss += sum.ln() + most - logits[example.class];
            let class = &mut score.classes[example.class];
            *class = [class[0] + usize::from(logits[example.class] == most), class[1] + 1];
        }
    }
    score.loss /= examples.len() as f64;
    Ok(score)
}
