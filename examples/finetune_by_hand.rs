//! Fine-tunes BERT for text classification, with an explicit training loop: a template to copy.
//!
//! `cargo run --example finetune_by_hand` trains the small model that ships with grove to distinguish speech from
//! narration.
//! The example `finetune_bert` adds checkpoints, resumption, adapters and more options.

use clap::Parser;
use grove::{
    optim::warmup_cosine_decay_schedule,
    prelude::*,
    text::Truncation,
    train::{
        classify::{TextExample, encode_examples, score_texts, text_batch},
        data::{Columns, LabelledText, labels, read_labelled, split_by_class},
    },
};
use std::{error::Error, path::PathBuf};

/// Backend of the program. `Flex` runs on the CPU; others are `Cuda` and `Candle`. `Program` selects one at run time.
type B = Flex;

/// Fine-tunes BERT for text classification.
#[derive(Parser)]
#[command(name = "finetune_by_hand", version)]
struct Options {
    /// Directory or hub id of a BERT, RoBERTa or DistilBERT
    #[arg(long, default_value = "models/assets/bert-austen")]
    model: String,

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
    let texts = read_labelled(&[options.data], &Columns::default())?;
    let names = labels(&texts)?;
    let tokenizer = Tokenizer::from_pretrained(&options.model)?;
    let encode = |text: &LabelledText| {
        tokenizer.encode_text(&text.text, None, Some(128), Truncation::LongestFirst).map(|encoded| encoded.text)
    };
    let examples = encode_examples(texts, &names, encode)?;
    let (training, held_out) = split_by_class(examples, TextExample::class, 0.1, key.fold_in(0));

    // Model: the pretrained encoder with a randomly initialised classification head.
    let mut model = BertForSequenceClassification::<B>::with_new_head(&options.model, names, key.fold_in(1), &device)?;

    // Batches: shuffled in each epoch, with texts of similar length together to reduce padding.
    let data = Examples::bucketed(training, 32, |example| example.text.ids.len(), key.fold_in(2))?;

    // Optimizer: gradient clipping, then AdamW with linear warm-up and cosine decay. Weight decay applies to matrices
    // only.
    let steps = options.epochs * data.batches_per_epoch() as u64;
    let schedule = warmup_cosine_decay_schedule(0.0, 1e-3, steps / 10, steps, 0.0);
    let decay = Adamw::default().weight_decay(0.01).mask(matrices());
    let optimizer = chain((clip_by_global_norm::<B>(1.0), adamw(schedule, decay)));
    let mut state = optimizer.init(&model);

    let mut score = score_texts(&model, &held_out, 32)?;
    for epoch in 0..options.epochs {
        for (i, batch) in data.epoch(epoch).enumerate() {
            let batch = text_batch(&model, &batch?)?;
            let key = key.fold_in(3).fold_in(epoch as u32).fold_in(i as u32); // for dropout
            let (_loss, grads) = value_and_grad_with(&model, &batch, |model, (texts, classes)| {
                model.loss(&texts, classes.val(), Some(key))
            });
            (model, state) = optimizer.step(grads, state, model);
        }
        score = score_texts(&model, &held_out, 32)?;
        eprintln!(
            "epoch {}: loss {:.4}, accuracy {:.1} %",
            epoch + 1,
            score.loss(),
            100.0 * score.confusion.accuracy()
        );
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
