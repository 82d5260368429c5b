//! From labelled texts to what is trained on.

use grove::{models::Tokenizer, prelude::*};

use super::{
    ClassifyOptions,
    read::{Labelled, Place},
};
use crate::common::{Exit, failure};

/// A text as the model reads it.
#[derive(Clone)]
pub struct Example {
    pub ids: Vec<u32>,
    pub class: usize,
}

/// The labels that occur, sorted; at least two.
pub fn labels(texts: &[Labelled]) -> Result<Vec<String>, Exit> {
    let mut labels: Vec<String> = texts.iter().map(|text| text.label.clone()).collect();
    labels.sort();
    labels.dedup();
    match (&labels[..], texts) {
        ([label], [first, ..]) => Err(failure(format!(
            "{}: all texts from here on have the label '{label}', and a classifier needs at least two labels",
            first.place
        ))),
        _ => Ok(labels),
    }
}

/// Splits each class in two: what is trained on, and the part of it that is held out, drawn by the key. Of a class with
/// one text none is held out.
pub fn split<T>(items: Vec<(usize, T)>, held_out: f64, key: Key) -> (Vec<T>, Vec<T>) {
    let classes = items.iter().map(|(class, _)| class + 1).max().unwrap_or(0);
    let mut held = vec![false; items.len()];
    for class in 0..classes {
        let members: Vec<usize> = (0..items.len()).filter(|&i| items[i].0 == class).collect();
        let count = (members.len() as f64 * held_out).round() as usize;
        let order = key.fold_in(class as u32).permutation(members.len());
        for &i in order.iter().take(count.min(members.len().saturating_sub(1))) {
            held[members[i]] = true;
        }
    }
    let (held, rest): (Vec<_>, Vec<_>) = items.into_iter().zip(held).partition(|(_, held)| *held);
    let item = |((_, item), _): ((usize, T), bool)| item;
    (rest.into_iter().map(item).collect(), held.into_iter().map(item).collect())
}

/// Each text with the number of its class.
pub fn with_classes(texts: Vec<Labelled>, labels: &[String]) -> Result<Vec<(usize, Labelled)>, Exit> {
    let class = |text: Labelled| match labels.iter().position(|label| *label == text.label) {
        Some(class) => Ok((class, text)),
        None => Err(failure(format!(
            "{}: the label '{}' is not one of the model's, which are {}",
            text.place,
            text.label,
            labels.join(", ")
        ))),
    };
    texts.into_iter().map(class).collect()
}

/// The tokenizer of a new model: the one that is named, or one learned from the texts.
pub fn new_tokenizer(options: &ClassifyOptions, texts: &[(usize, Labelled)]) -> Result<Tokenizer, Exit> {
    if let Some(path) = &options.tokenizer {
        return Tokenizer::from_path(path).map_err(failure);
    }
    let texts: Vec<&str> = texts.iter().map(|(_, text)| &*text.text).collect();
    Tokenizer::train_bpe(&texts, options.vocab_size).map_err(|error| Exit::Usage(format!("--vocab-size: {error}")))
}

/// Tokens of a text, at most so many, each of which the model knows.
pub fn tokens(text: &str, tokenizer: &Tokenizer, vocab_size: usize, most: usize) -> Result<Vec<u32>, String> {
    let mut ids = tokenizer.encode(text).map_err(|error| error.to_string())?;
    ids.truncate(most);
    match ids.iter().max() {
        None => Err("the tokenizer makes no tokens of this text".into()),
        Some(&id) if id as usize >= vocab_size => {
            Err(format!("the tokenizer gives token {id}, and the model has {vocab_size}: it belongs to another model"))
        }
        _ => Ok(ids),
    }
}

/// All texts as the model reads them.
pub fn examples(
    texts: Vec<(usize, Labelled)>,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    most: usize,
) -> Result<Vec<(usize, Example)>, Exit> {
    let at = |place: Place| move |reason| failure(format!("{place}: {reason}"));
    let example = |(class, Labelled { text, place, .. }): (usize, Labelled)| {
        let ids = tokens(&text, tokenizer, vocab_size, most).map_err(at(place))?;
        Ok((class, Example { ids, class }))
    };
    texts.into_iter().map(example).collect()
}
