//! From labelled texts to what is trained on.

use grove::{
    models::Tokenizer,
    train::data::{Columns, LabelledText, Place, read_labelled},
};

use super::ClassifyOptions;
use crate::{Exit, failure};

/// Reads labelled texts: of a table without names the label stands before the text.
pub fn read(options: &ClassifyOptions) -> Result<Vec<LabelledText>, Exit> {
    let objects = |file: &std::path::PathBuf| file.extension().is_some_and(|extension| extension == "jsonl");
    let (objects, tables): (Vec<_>, Vec<_>) = options.data.iter().cloned().partition(objects);
    let columns = |text: &str, label: &str| Columns {
        text: text.into(),
        pair: None,
        label: label.into(),
        header: false,
        delimiter: options.delimiter,
    };
    let mut texts = read_labelled(&tables, &columns("2", "1")).map_err(failure)?;
    texts.extend(read_labelled(&objects, &columns("text", "label")).map_err(failure)?);
    Ok(texts)
}

/// A text as the model reads it.
#[derive(Clone)]
pub struct Example {
    pub ids: Vec<u32>,
    pub class: usize,
}

/// The tokenizer of a new model: the one that is named, or one learned from the texts.
pub fn new_tokenizer(options: &ClassifyOptions, texts: &[(usize, LabelledText)]) -> Result<Tokenizer, Exit> {
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
    texts: Vec<(usize, LabelledText)>,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    most: usize,
) -> Result<Vec<(usize, Example)>, Exit> {
    let at = |place: Place| move |reason| failure(format!("{place}: {reason}"));
    let example = |(class, LabelledText { text, place, .. }): (usize, LabelledText)| {
        let ids = tokens(&text, tokenizer, vocab_size, most).map_err(at(place))?;
        Ok((class, Example { ids, class }))
    };
    texts.into_iter().map(example).collect()
}
