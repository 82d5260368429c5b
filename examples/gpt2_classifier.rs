//! GPT-2 with a classification head: `cargo run --example gpt2_classifier` fine-tunes the small model that ships with
//! grove to distinguish speech from narration.

use clap::Parser;
use grove::prelude::*;
use grove::train::data::{Columns, Examples, LabelledText, epoch, labels, read_labelled, split_by_class};
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
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// GPT-2 and a linear layer over the hidden state of a text's last token.
#[derive(Tree, Clone, Debug)]
struct Classifier<B: Backend> {
    gpt2: Gpt2<B>,
    score: Linear<B>,
}

impl<B: Backend> Classifier<B> {
    /// Computes the logits of one text, `[1, t]` to `[1, labels]`.
    fn forward(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 2> {
        let t = ids.dims()[1];
        let hidden = self.gpt2.features(ids, key); // [1, t, n_embd]
        self.score.forward(hidden.narrow(1, t - 1, 1).squeeze_dim(1))
    }
}

/// Token ids of a text, and its class.
type Example = (Vec<i64>, i64);

fn ids<B: Backend>(example: &Example, device: &B::Device) -> Tensor<B, 2, Int> {
    Tensor::<B, 1, Int>::from_ints(&example.0[..], device).unsqueeze()
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, key, device) = (Options::parse(), Key::new(0), Default::default());
    let columns = Columns { text: "text".into(), label: "label".into(), pair: None, header: true, delimiter: None };
    let texts = read_labelled(&[options.data], &columns)?;
    let names = labels(&texts)?;
    let tokenizer = Tokenizer::from_pretrained(&options.model)?;
    let gpt2 = Gpt2::<Flex>::from_pretrained(&options.model, &device)?;
    let example = |text: LabelledText| -> Result<(usize, Example), Box<dyn Error>> {
        let class = names.iter().position(|name| *name == text.label).ok_or("a label of the data")?;
        let ids = tokenizer.encode(&text.text)?.into_iter().map(i64::from).take(gpt2.config.n_positions);
        Ok((class, (ids.collect(), class as i64)))
    };
    let examples = texts.into_iter().map(example).collect::<Result<Vec<_>, _>>()?;
    let (training, held_out) = split_by_class(examples, 0.1, key.fold_in(0));

    let score = Linear::new(gpt2.config.n_embd, names.len(), key.named("score"));
    let mut model = Classifier { gpt2, score };
    let data = Examples::bucketed(training, 16, |example| example.0.len(), key.fold_in(1))?;
    let optimizer = chain((clip_by_global_norm::<Flex>(1.0), adamw(3e-4, Adamw::default().weight_decay(0.01))));
    let mut state = optimizer.init(&model);
    let loss = |model: Classifier<Autodiff<Flex>>, batch: &Vec<Example>, key: Key| {
        // Texts of one batch have different lengths, and each is read by itself.
        let logits = batch
            .iter()
            .enumerate()
            .map(|(i, example)| model.forward(ids(example, &device), Some(key.fold_in(i as u32))));
        let classes: Vec<i64> = batch.iter().map(|example| example.1).collect();
        cross_entropy(Tensor::cat(logits.collect(), 0), Tensor::from_ints(&classes[..], &device))
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
        let logits = model.forward(ids(example, &device), None);
        i64::from(logits.argmax(1).into_scalar()) == example.1
    });
    let accuracy = right.count() as f64 / held_out.len().max(1) as f64;
    match options.json {
        true => println!("{}", serde_json::json!({ "accuracy": accuracy, "labels": names })),
        false => println!("{:.1} % of {} held-out texts are right", 100.0 * accuracy, held_out.len()),
    }
    Ok(())
}
