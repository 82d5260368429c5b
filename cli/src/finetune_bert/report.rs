//! Classification metrics and their report.

use grove::{prelude::*, train::ClassifierScore};
use serde_json::{Value, json};

use crate::{Exit, failure, finetune_bert::data::Example, finetune_bert::model::Classifier, write_json, write_line};

/// Reads all examples, so many at once.
pub fn score<B: Backend>(
    model: &Classifier<B>,
    examples: &[Example],
    batch_size: usize,
) -> Result<ClassifierScore, Exit> {
    let mut order: Vec<&Example> = examples.iter().collect();
    // Of similar length together, for less padding.
    order.sort_by_key(|example| example.text.ids.len());
    let labels = &model.bert.config.labels;
    let mut score = ClassifierScore::new(labels);
    for batch in order.chunks(batch_size) {
        let texts: Vec<_> = batch.iter().map(|example| example.text.clone()).collect();
        let logits = model.forward(&model.bert.batch(&texts).map_err(failure)?, None).into_data();
        let logits: Vec<f64> = logits.iter::<f64>().collect();
        for (logits, example) in logits.chunks(labels.len()).zip(batch) {
            score.add(logits, example.class);
        }
    }
    Ok(score)
}

/// For scripts.
pub fn json(score: &ClassifierScore) -> Value {
    let mut found = score.confusion.json();
    found["loss"] = json!(score.loss());
    found["texts"] = json!(score.confusion.count());
    found
}

/// Does what `--evaluate` asks for.
pub fn print(score: &ClassifierScore, as_json: bool) -> Result<(), Exit> {
    if as_json {
        return write_json(&json(score));
    }
    let (texts, accuracy) = (score.confusion.count(), 100.0 * score.confusion.accuracy());
    let f1 = 100.0 * score.confusion.macro_f1();
    write_line(&format!("{texts} texts, {accuracy:.1} % right, macro F1 {f1:.1} %, {:.4} nats a text", score.loss()))?;
    write_line(&format!("\n{}", score.confusion.table()))
}
