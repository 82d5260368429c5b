//! Training a classifier.

use grove::{
    models::{RnnClassifier, RnnClassifierConfig, Tokenizer},
    prelude::*,
    tensor::TensorData,
    train::{
        DataIdentity, Ended, Evaluation, Outcome,
        data::{Data, Examples, labels as labels_of, split_by_class, with_classes},
        fit,
    },
};
use indicatif::HumanCount;
use std::{path::Path, sync::Arc};

use super::{
    ClassifyOptions,
    data::{self, Example},
    evaluate, options,
};
use crate::{
    Exit, failure, labelled, memory,
    training::{Output, POOL, Summary, evaluation_failed, model_settings},
    write_json, write_line,
};

/// Texts and their classes.
struct Batch {
    texts: Vec<Vec<u32>>,
    classes: Vec<i64>,
}

/// Model and data at the start of a run.
struct Prepared<B: Backend> {
    model: RnnClassifier<B>,
    tokenizer: Tokenizer,
    training: Vec<Example>,
    held_out: Vec<Example>,
}

pub fn run<B: Backend>(options: &ClassifyOptions, device: &B::Device) -> Result<Ended, Exit> {
    let asked = &options.training;
    let output = Output::open(&options.run, asked.keep)?;
    let Prepared { model, tokenizer, training, held_out } = prepare::<B>(options, output.as_ref(), device)?;
    let key = Key::new(options.run.seed);
    let counts = [training.len(), held_out.len()].map(|count| HumanCount(count as u64));
    let config = serde_json::to_value(&model.config).map_err(failure)?;
    let made_of = model_settings(&config)
        .with("max-length", options.max_length)
        .with("dropout", options.dropout)
        .with("one-direction", options.one_direction)
        .with("vocab-size", options.vocab_size)
        .with("data", identity(&training))
        .with("held-out", identity(&held_out));
    let collate = |batch: &[&Example]| Batch {
        texts: batch.iter().map(|example| example.ids.clone()).collect(),
        classes: batch.iter().map(|example| example.class as i64).collect(),
    };
    let data = Examples::new(training, asked.batch_size, collate).map_err(failure)?;
    let data = data.shuffle(key.fold_in(2)).bucket(|example| example.ids.len(), POOL).map_err(failure)?;
    let data = Arc::new(data);
    let steps = asked.steps(options::EPOCHS, data.batches_per_epoch())?;
    let schedule = asked.schedule(steps)?;
    let optimizer = asked.optimizer::<B, RnnClassifier<B>>(&schedule);
    let loss_fn = |model: RnnClassifier<Autodiff<B>>, batch: &Batch, key: Key| {
        let texts = model.pack(&batch.texts).expect("texts are not empty, and their tokens are the model's");
        let classes = TensorData::new(batch.classes.clone(), [batch.classes.len()]);
        let loss = model.loss(&texts, Tensor::from_data(classes, device), Some(key));
        Outcome::<B, RnnClassifier<B>>::new(loss).weight(batch.classes.len() as f64)
    };
    let score = |model: &RnnClassifier<B>| evaluate::score(model, &held_out, asked.batch_size);
    let evaluate = |model: &RnnClassifier<B>| {
        let found = score(model).map_err(evaluation_failed)?;
        Ok(Evaluation::from([("loss".into(), found.loss()), ("accuracy".into(), found.confusion.accuracy())]))
    };
    let unit = ("texts", asked.batch_size as u64);
    if let Some(output) = &output {
        let config = serde_json::to_string_pretty(&config).map_err(failure)?;
        output.begin(&options.run, &config, Some(&tokenizer))?;
    }
    let (run, evaluated) = (&options.run, !held_out.is_empty());
    let settings = asked.fit_options(run, output.as_ref(), made_of, steps, evaluated, schedule, unit)?;
    eprintln!(
        "{} parameters; {} classes; {} texts to train on, {} held out; {} steps of {} texts",
        HumanCount(tree::count_params(&model) as u64),
        model.config.labels.len(),
        counts[0],
        counts[1],
        HumanCount(steps),
        asked.batch_size * asked.accumulate,
    );
    let fitted = fit(model, &optimizer, &data, loss_fn, evaluate, key.fold_in(3), &settings).map_err(failure)?;
    let save = |model: RnnClassifier<B>, directory: &Path| model.save_pretrained(directory);
    let (model, summary) = Summary::save(fitted, output.as_ref(), asked.save_dtype, save)?;
    let found = if held_out.is_empty() { None } else { Some(score(&model)?) };
    let accuracy = found.as_ref().map(|found| found.confusion.accuracy());
    if options.run.json {
        write_json(&summary.json("accuracy", accuracy))?;
        return Ok(summary.ended);
    }
    let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.1} %", 100.0 * accuracy)));
    write_line(&summary.table("text", measure))?;
    if let Some(found) = found {
        write_line(&format!("\n{}", found.confusion.table()))?;
    }
    Ok(summary.ended)
}

/// Identity of the texts.
fn identity(examples: &[Example]) -> String {
    let mut identity = DataIdentity::new();
    for example in examples {
        identity.add_tokens(&example.ids);
        identity.add_tokens(&[example.class as u32]);
    }
    format!("{} texts ({})", examples.len(), identity.finish())
}

/// Model, tokenizer and data, from the options and from the run that is resumed.
fn prepare<B: Backend>(
    options: &ClassifyOptions,
    output: Option<&Output>,
    device: &B::Device,
) -> Result<Prepared<B>, Exit> {
    let key = Key::new(options.run.seed);
    let texts = data::read(options)?;
    let resumed =
        output.map_or(Ok(None), Output::config)?.map(RnnClassifierConfig::from_file).transpose().map_err(failure)?;
    let labels =
        resumed.as_ref().map_or_else(|| labels_of(&texts).map_err(failure), |config| Ok(config.labels.clone()))?;
    let texts = with_classes(texts, &labels).map_err(failure)?;
    let tokenizer = match output.map_or(Ok(None), Output::tokenizer)? {
        Some(tokenizer) => tokenizer,
        None => data::new_tokenizer(options, &texts)?,
    };
    let config = match resumed {
        Some(config) => {
            let sizes = [config.num_layers, config.hidden_size, config.embedding_size];
            options.sizes.check_resumed(config.cell, sizes)?;
            config
        }
        None => new_config(options, labels, &tokenizer),
    };
    let skeleton = RnnClassifier::<B>::skeleton(&config).map_err(|error| Exit::Usage(error.to_string()))?;
    memory::trains::<B>(&options.run.device, &skeleton)?;
    let model = RnnClassifier::init(&config, key.fold_in(1), device).map_err(|error| Exit::Usage(error.to_string()))?;
    let examples = data::examples(texts, &tokenizer, config.vocab_size, options.max_length)?;
    let (training, held_out) = split_by_class(examples, options.held_out, key.fold_in(4));
    if held_out.is_empty() && options.held_out > 0.0 {
        let files: Vec<String> = options.data.iter().map(|file| file.display().to_string()).collect();
        return Err(failure(format!(
            "{}: {} texts are too few to hold out {} of each class: give more, or a larger --held-out, or 0",
            files.join(", "),
            training.len(),
            options.held_out
        )));
    }
    labelled::tell_unheld(&model.config.labels, held_out.iter().map(|example| example.class));
    Ok(Prepared { model, tokenizer, training, held_out })
}

fn new_config(options: &ClassifyOptions, labels: Vec<String>, tokenizer: &Tokenizer) -> RnnClassifierConfig {
    let sizes = &options.sizes;
    let hidden_size = sizes.hidden.unwrap_or(128);
    RnnClassifierConfig {
        cell: sizes.cell.unwrap_or_default(),
        vocab_size: tokenizer.vocab_size(),
        embedding_size: sizes.embedding.unwrap_or(hidden_size),
        hidden_size,
        num_layers: sizes.layers.unwrap_or(1),
        bidirectional: !options.one_direction,
        dropout: options.dropout,
        labels,
        ..RnnClassifierConfig::default()
    }
}
