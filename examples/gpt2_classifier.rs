//! GPT-2 with a classification head: `cargo run --example gpt2_classifier` fine-tunes the small model that ships with
//! grove to distinguish speech from narration. `grove classify texts` and transformers load the result.

use clap::Parser;
use grove::{
    optim::except,
    prelude::*,
    text::Truncation,
    train::{
        classify::{TextExample, encode_examples, score_texts, text_batch},
        data::{Columns, LabelledText, labels, read_labelled, split_by_class},
    },
};
use std::{error::Error, path::PathBuf};

/// Fine-tunes a GPT-2 to classify texts.
#[derive(Parser)]
#[command(name = "gpt2_classifier", version)]
struct Options {
    /// Directory or hub id of a GPT-2
    #[arg(long, default_value = "models/assets/gpt2-austen")]
    model: String,
    /// CSV file with the columns text and label
    #[arg(long, default_value = "models/assets/bert-austen/speech.csv")]
    data: PathBuf,
    /// Number of passes over the data
    #[arg(long, default_value_t = 3)]
    epochs: u64,
    /// Parameters to freeze, as path patterns: "wte.**,h.0.**"
    #[arg(long, value_delimiter = ',')]
    freeze: Vec<String>,
    /// Directory for the trained model
    #[arg(long)]
    output: Option<PathBuf>,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, key, device) = (Options::parse(), Key::new(0), Default::default());
    let texts = read_labelled(&[options.data], &Columns::default())?;
    let names = labels(&texts)?;
    let tokenizer = Tokenizer::from_pretrained(&options.model)?;
    let mut model = Gpt2ForSequenceClassification::<Flex>::with_new_head(&options.model, names.clone(), key, &device)?;
    let context = model.decoder.config.n_positions;
    let encode = |text: &LabelledText| {
        tokenizer.encode_text(&text.text, None, Some(context), Truncation::LongestFirst).map(|encoded| encoded.text)
    };
    let examples = encode_examples(texts, &names, encode)?;
    let (training, held_out) = split_by_class(examples, TextExample::class, 0.1, key.fold_in(0));
    let data = Examples::bucketed(training, 16, |example| example.text.ids.len(), key.fold_in(1))?;

    let trained = except(&model, &options.freeze, "decoder.").map_err(|error| format!("--freeze: {error}"))?;
    let gradients = GradOptions::new().only(trained);
    let optimizer = chain((clip_by_global_norm(1.0), adamw(3e-4, Adamw::default().weight_decay(0.01))));
    let mut state = optimizer.init(&model);
    for epoch in 0..options.epochs {
        for (i, batch) in data.epoch(epoch).enumerate() {
            let batch = text_batch(&model, &batch?)?;
            let key = key.fold_in(2).fold_in(epoch as u32).fold_in(i as u32); // for dropout
            let (_loss, grads) = gradients.value_and_grad_with(&model, &batch, |model, (texts, classes)| {
                model.loss(&texts, classes.val(), Some(key))
            });
            (model, state) = optimizer.step(grads, state, model);
        }
    }

    let accuracy = score_texts(&model, &held_out, 16)?.confusion.accuracy();
    if let Some(directory) = options.output {
        model.save_pretrained(&directory)?;
        tokenizer.save(&directory)?;
    }
    match options.json {
        true => println!("{}", serde_json::json!({ "accuracy": accuracy, "labels": names })),
        false => println!("{:.1} % of {} held-out texts are right", 100.0 * accuracy, held_out.len()),
    }
    Ok(())
}
