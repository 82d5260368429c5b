//! A classification head, trained on a CSV file, on a frozen GPT-2.

use grove::{
    prelude::*,
    text::Truncation,
    train::{
        classify::{TextExample, encode_examples, score_texts, text_batch},
        data::{Columns, LabelledText, labels, read_labelled, split_by_class},
    },
    tree::by_path,
};
use std::error::Error;

/// GPT-2 with a head for the labels of a file.
pub type Classifier = Gpt2ForSequenceClassification<Flex>;

/// Trains a classifier on a file with the columns text and label. Returns it with its accuracy on held-out texts, a tenth of the file.
pub fn finetune(source: &str, file: &str, epochs: u64) -> Result<(Classifier, f64), Box<dyn Error>> {
    let (key, device) = (Key::new(0), Default::default());
    let texts = read_labelled(&[file], &Columns::default())?;
    let names = labels(&texts)?;
    let tokenizer = Tokenizer::from_pretrained(source)?;
    let mut model = Classifier::with_new_head(source, names.clone(), key, &device)?;
    let encode = |text: &LabelledText| {
        tokenizer.encode_text(&text.text, None, Some(128), Truncation::LongestFirst).map(|encoded| encoded.text)
    };
    let examples = encode_examples(texts, &names, encode)?;
    let (training, held_out) = split_by_class(examples, TextExample::class, 0.1, key);
    let data = Examples::bucketed(training, 16, |example| example.text.ids.len(), key)?;
    let head = GradOptions::new().only(by_path("score.**"));
    let optimizer = adamw(3e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    for epoch in 0..epochs {
        for batch in data.epoch(epoch) {
            let batch = text_batch(&model, &batch?)?;
            let (_loss, grads) = head
                .value_and_grad_with(&model, &batch, |model, (texts, classes)| model.loss(&texts, classes.val(), None));
            (model, state) = optimizer.step(grads, state, model);
        }
    }
    let accuracy = score_texts(&model, &held_out, 16)?.confusion.accuracy();
    Ok((model, accuracy))
}
