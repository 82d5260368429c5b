//! GPT-2 with a classification head: `cargo run --example gpt2_classifier` fine-tunes the small model that ships with
//! grove to distinguish speech from narration. `grove classify texts` and transformers load the result.

use clap::Parser;
use grove::prelude::*;
use grove::train::data::{Columns, Examples, LabelledText, epoch, labels, read_labelled, split_by_class};
use grove::{
    models::{ModelFiles, bert::ProblemType},
    text::TextIds,
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
    /// Directory for the trained model
    #[arg(long)]
    output: Option<PathBuf>,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// Tokens of a text, and its class.
type Example = (TextIds, usize);

/// Computes the logits of examples, `[b, labels]`. Texts of different lengths are padded.
fn logits<B: Backend>(
    model: &Gpt2ForSequenceClassification<B>,
    examples: &[Example],
    key: Option<Key>,
) -> Tensor<B, 2> {
    let texts: Vec<TextIds> = examples.iter().map(|example| example.0.clone()).collect();
    model.forward(&model.batch(&texts).expect("texts of the model's tokens"), key)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, key, device) = (Options::parse(), Key::new(0), Default::default());
    let columns = Columns { text: "text".into(), label: "label".into(), pair: None, header: true, delimiter: None };
    let texts = read_labelled(&[options.data], &columns)?;
    let names = labels(&texts)?;
    let files = ModelFiles::from_pretrained(&options.model)?;
    let tokenizer = Tokenizer::beside(files.path())?;
    let mut model = Gpt2ForSequenceClassification::<Flex>::with_new_head(
        &files,
        names.clone(),
        ProblemType::SingleLabel,
        key.named("score"),
        &device,
        None,
    )?;
    let (context, vocab_size) = (model.decoder.config.n_positions, model.decoder.config.vocab_size);
    let example = |text: LabelledText| -> Result<(usize, Example), Box<dyn Error>> {
        let class = names.iter().position(|name| *name == text.label).ok_or("a label of the data")?;
        Ok((class, (tokenizer.encode_for(&text.text, context, vocab_size)?, class)))
    };
    let examples = texts.into_iter().map(example).collect::<Result<Vec<_>, _>>()?;
    let (training, held_out) = split_by_class(examples, 0.1, key.fold_in(0));

    let data = Examples::bucketed(training, 16, |example| example.0.ids.len(), key.fold_in(1))?;
    let optimizer = chain((clip_by_global_norm::<Flex>(1.0), adamw(3e-4, Adamw::default().weight_decay(0.01))));
    let mut state = optimizer.init(&model);
    let loss = |model: Gpt2ForSequenceClassification<Autodiff<Flex>>, batch: &Vec<Example>, key: Key| {
        let classes: Vec<i64> = batch.iter().map(|example| example.1 as i64).collect();
        cross_entropy(logits(&model, batch, Some(key)), Tensor::from_ints(&classes[..], &device))
    };
    let step = train_step(loss, &optimizer, StepOptions::default());
    let mut number = 0;
    for pass in 0..options.epochs {
        for batch in epoch(&data, pass) {
            (model, state, _) = step(model, state, &batch?, key.fold_in(2).fold_in(number));
            number += 1;
        }
    }

    let right = held_out.iter().filter(|example| {
        let logits = logits(&model, std::slice::from_ref(example), None);
        logits.argmax(1).into_scalar() as usize == example.1
    });
    let accuracy = right.count() as f64 / held_out.len().max(1) as f64;
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
