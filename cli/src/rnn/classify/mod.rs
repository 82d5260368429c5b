//! Classifiers of texts.

mod data;
mod evaluate;
mod options;
mod train;

use grove::{
    models::{RnnClassifier, Tokenizer, check_finite},
    prelude::*,
    train::{Ended, data::with_classes},
    weights::FilePatterns,
};
use serde_json::{Map, json};

use crate::{Exit, failure, labelled, resolve_named, write_json, write_line};
pub use options::ClassifyOptions;

/// Trains a classifier, or uses one, as the options ask.
pub fn run<B: Backend>(options: &ClassifyOptions, device: &B::Device) -> Result<Ended, Exit> {
    let Some(model) = &options.model else { return train::run::<B>(options, device) };
    let path = resolve_named(model, &FilePatterns::model())?;
    let (model, _) = RnnClassifier::<B>::from_path(&path, device, None).map_err(failure)?;
    let tokenizer = Tokenizer::beside(&path).map_err(failure)?;
    match options.evaluate {
        true => print_score(options, &model, &tokenizer)?,
        false => print_predictions(options, &model, &tokenizer)?,
    }
    Ok(Ended::Finished)
}

/// Does what `--evaluate` asks for.
fn print_score<B: Backend>(
    options: &ClassifyOptions,
    model: &RnnClassifier<B>,
    tokenizer: &Tokenizer,
) -> Result<(), Exit> {
    let config = &model.config;
    let texts = with_classes(data::read(options)?, &config.labels).map_err(failure)?;
    let examples = data::examples(texts, tokenizer, config.vocab_size, options.max_length)?;
    let examples: Vec<data::Example> = examples.into_iter().map(|(_, example)| example).collect();
    labelled::tell_unheld(&config.labels, examples.iter().map(|example| example.class));
    let score = evaluate::score(model, &examples, options.training.batch_size)?;
    check_finite(model, [score.loss()]).map_err(failure)?;
    let (texts, accuracy, loss) = (examples.len(), score.confusion.accuracy(), score.loss());
    if options.run.json {
        let classes: Map<_, _> =
            config.labels.iter().cloned().zip((0..).map(|class| json!(score.confusion.recall(class)))).collect();
        return write_json(&json!({ "accuracy": accuracy, "loss": loss, "texts": texts, "classes": classes }));
    }
    write_line(&format!("{texts} texts, {:.1} % recognised, {loss:.4} nats a text", 100.0 * accuracy))?;
    write_line(&score.confusion.table())
}

/// Does what `--predict` asks for.
fn print_predictions<B: Backend>(
    options: &ClassifyOptions,
    model: &RnnClassifier<B>,
    tokenizer: &Tokenizer,
) -> Result<(), Exit> {
    let ids = |text: &String| data::tokens(text.trim(), tokenizer, model.config.vocab_size, options.max_length);
    let ids: Vec<Vec<u32>> = options.predict.iter().map(ids).collect::<Result<_, _>>().map_err(failure)?;
    let predictions = model.predict(&model.pack(&ids).map_err(failure)?);
    check_finite(model, predictions.iter().map(|found| f64::from(found.probability))).map_err(failure)?;
    let both = options.predict.iter().zip(&predictions);
    if options.run.json {
        let predictions: Vec<_> = both
            .map(|(text, predicted)| {
                json!({ "text": text, "label": predicted.label, "probability": predicted.probability })
            })
            .collect();
        return write_json(&json!({ "predictions": predictions }));
    }
    for (text, predicted) in both {
        write_line(&format!("{}  {:.1} %  {text}", predicted.label, 100.0 * predicted.probability))?;
    }
    Ok(())
}
