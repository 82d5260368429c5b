//! From labelled texts to what the model reads.

use grove::{
    models::{
        Tokenizer, Truncation,
        bert::{BertConfig, TextIds},
    },
    prelude::*,
    train::data::{self, LabelledText, read_labelled, split_by_class, with_classes},
};

use crate::{Exit, failure, finetune_bert::options::Options, shipped};

/// Tokens of a text where nothing else is given.
const MAX_LENGTH: usize = 128;

/// A text as the model reads it.
#[derive(Clone)]
pub struct Example {
    pub text: TextIds,
    pub class: usize,
}

/// Reads what is trained on, and what is evaluated on where that is given.
pub fn read(options: &Options) -> Result<(Vec<LabelledText>, Option<Vec<LabelledText>>), Exit> {
    let demonstration = [shipped("bert-austen/speech.csv")];
    let files = if options.data.is_empty() { &demonstration } else { &options.data[..] };
    let columns = options.columns();
    let held_out = match &options.held_out[..] {
        [] => None,
        files => Some(read_labelled(files, &columns).map_err(failure)?),
    };
    Ok((read_labelled(files, &columns).map_err(failure)?, held_out))
}

/// The labels that are given, or those that occur.
pub fn labels(options: &Options, texts: &[LabelledText]) -> Result<Vec<String>, Exit> {
    match &options.labels[..] {
        [] => data::labels(texts).map_err(failure),
        given => Ok(given.to_vec()),
    }
}

/// Texts as the model reads them, and how many of them had to be cut.
pub fn examples(
    texts: Vec<LabelledText>,
    labels: &[String],
    tokenizer: &Tokenizer,
    config: &BertConfig,
    options: &Options,
) -> Result<(Vec<(usize, Example)>, usize), Exit> {
    let most = options.max_length.unwrap_or(MAX_LENGTH.min(config.positions()));
    if most > config.positions() {
        return Err(Exit::Usage(format!("--max-length is {most}, and the model has {} positions", config.positions())));
    }
    let mut cut = 0;
    let example = |(class, LabelledText { text, pair, place, .. }): (usize, LabelledText)| {
        let encoded = tokenizer.encode_text(&text, pair.as_deref(), Some(most), Truncation::LongestFirst);
        let encoded = encoded.map_err(|error| failure(format!("{place}: {error}")))?;
        cut += usize::from(encoded.truncated);
        let mut text = encoded.text;
        if config.type_vocab_size < 2 {
            text.token_types.clear();
        }
        Ok((class, Example { text, class }))
    };
    let examples =
        with_classes(texts, labels).map_err(failure)?.into_iter().map(example).collect::<Result<_, Exit>>()?;
    Ok((examples, cut))
}

/// Loss weight of each class: 1 for all, or inversely proportional to the number of its texts, with a mean of 1 per
/// text.
pub fn weights(examples: &[Example], classes: usize, balance: bool) -> Vec<f32> {
    let counts = (0..classes).map(|class| examples.iter().filter(|example| example.class == class).count());
    let weight = |count: usize| examples.len() as f32 / (classes * count.max(1)) as f32;
    counts.map(|count| if balance { weight(count) } else { 1.0 }).collect()
}

/// Splits, class by class, what is trained on from what is held out.
pub fn split(examples: Vec<(usize, Example)>, options: &Options) -> Result<(Vec<Example>, Vec<Example>), Exit> {
    let (training, held_out) = split_by_class(examples, options.val_fraction, Key::new(options.run.seed).fold_in(4));
    if held_out.is_empty() && options.val_fraction > 0.0 {
        return Err(failure(format!(
            "{} texts are too few to hold out {} of each class: give more, or a larger --val-fraction, or 0",
            training.len(),
            options.val_fraction
        )));
    }
    Ok((training, held_out))
}
