//! Evaluation of a classifier.

use grove::{models::RnnClassifier, prelude::*, train::ClassifierScore};

use super::data::Example;
use crate::{Exit, failure};

/// Reads all examples, so many at once.
pub fn score<B: Backend>(
    model: &RnnClassifier<B>,
    examples: &[Example],
    batch_size: usize,
) -> Result<ClassifierScore, Exit> {
    let mut order: Vec<&Example> = examples.iter().collect();
    // Of similar length together: packed batches then have fewer steps.
    order.sort_by_key(|example| example.ids.len());
    let mut score = ClassifierScore::new(&model.config.labels);
    for batch in order.chunks(batch_size) {
        let texts: Vec<Vec<u32>> = batch.iter().map(|example| example.ids.clone()).collect();
        let logits = model.forward(&model.pack(&texts).map_err(failure)?, None).into_data();
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        for (logits, example) in logits.chunks(model.config.labels.len()).zip(batch) {
            score.add(logits, example.class);
        }
    }
    Ok(score)
}
