//! Fine-tunes BERT for text classification, with an explicit training loop: a template to copy.
//!
//! `cargo run --example finetune_by_hand` trains the small model that ships with grove to distinguish speech from
//! narration.
//! The example `finetune_bert` adds checkpoints, resumption, adapters and more options.

use clap::Parser;
use grove::{
    models::{
        BertConfig,
        bert::{BertForSequenceClassification, TextBatch},
    },
    optim::{Adamw, GradientTransformation, adamw, chain, clip_by_global_norm, matrices, warmup_cosine_decay_schedule},
    prelude::*,
    text::{TextIds, Truncation},
    train::{
        classify::{TextExample, encode_examples, score_texts},
        data::{Columns, Data, Examples, LabelledText, epoch, labels, read_labelled, split_by_class},
        train_step,
    },
};
use std::{error::Error, path::PathBuf};

/// Backend of the program. `Flex` runs on the CPU; others are `Cuda` and `Candle`. `Program` selects one at run time.
type B = Flex;

/// Fine-tunes BERT for text classification.
#[derive(Parser)]
#[command(name = "finetune_by_hand", version)]
struct Options {
    /// Directory of a BERT, RoBERTa or DistilBERT model
    #[arg(long, default_value = "models/assets/bert-austen")]
    model: PathBuf,

    /// CSV file with the columns text and label
    #[arg(long, default_value = "models/assets/bert-austen/speech.csv")]
    data: PathBuf,

    /// Directory for the fine-tuned model
    #[arg(long)]
    output: Option<PathBuf>,

    /// Number of passes over the data
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,

    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let device = Default::default();
    let key = Key::new(0);

    // Data: tokenized texts with class indices. A tenth of each class is held out.
    let columns = Columns { text: "text".into(), label: "label".into(), pair: None, header: true, delimiter: None };
    let texts = read_labelled(&[options.data], &columns)?;
    let names = labels(&texts)?;
    let tokenizer = Tokenizer::from_path(&options.model)?;
    let encode = |text: &LabelledText| {
        tokenizer.encode_text(&text.text, None, Some(128), Truncation::LongestFirst).map(|encoded| encoded.text)
    };
    let examples =
        encode_examples(texts, &names, encode)?.into_iter().map(|example| (example.class(), example)).collect();
    let (training, held_out) = split_by_class(examples, 0.1, key.fold_in(0));

    // Model: the pretrained encoder with a randomly initialised classification head.
    let mut config = BertConfig::beside(&options.model)?;
    config.labels = names;
    let (mut model, _) =
        BertForSequenceClassification::<B>::with_new_head(&options.model, &config, key.fold_in(1), &device, None)?;

    // Batches: shuffled in each epoch, with texts of similar length together to reduce padding.
    let data = Examples::bucketed(training, 32, |example| example.text.ids.len(), key.fold_in(2))?;

    // Optimizer: gradient clipping, then AdamW with linear warm-up and cosine decay. Weight decay applies to matrices
    // only.
    let steps = options.epochs * data.batches_per_epoch() as u64;
    let schedule = warmup_cosine_decay_schedule(0.0, 1e-3, steps / 10, steps, 0.0);
    let decay = Adamw::default().weight_decay(0.01).mask(matrices());
    let optimizer = chain((clip_by_global_norm::<B>(1.0), adamw(schedule, decay)));
    let mut state = optimizer.init(&model);

    // A train step is a pure function of model, optimizer state, batch and key. The key seeds the dropout.
    let loss = |model: BertForSequenceClassification<Autodiff<B>>, batch: &Vec<TextExample>, key: Key| {
        let texts: Vec<TextIds> = batch.iter().map(|example| example.text.clone()).collect();
        let texts = TextBatch::new(&texts, &model.bert.config, &device).expect("tokens of this model");
        let classes: Vec<i64> = batch.iter().map(|example| example.class() as i64).collect();
        model.loss(&texts, Tensor::from_data(&classes[..], &device), Some(key))
    };
    let step = train_step(loss, &optimizer, StepOptions::default());
    let mut number = 0;
    let mut score = score_texts(&model, &held_out, 32)?;
    for pass in 0..options.epochs {
        for batch in epoch(&data, pass) {
            (model, state, _) = step(model, state, &batch?, key.fold_in(3).fold_in(number));
            number += 1;
        }
        score = score_texts(&model, &held_out, 32)?;
        eprintln!("epoch {}: loss {:.4}, accuracy {:.1} %", pass + 1, score.loss(), 100.0 * score.confusion.accuracy());
    }

    if let Some(directory) = options.output {
        model.save_pretrained(&directory)?;
        tokenizer.save(&directory)?;
    }
    if options.json {
        println!("{}", serde_json::json!({"loss": score.loss(), "accuracy": score.confusion.accuracy()}));
    } else {
        println!("{}", score.confusion.table());
    }
    Ok(())
}
