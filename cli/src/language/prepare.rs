//! Model, tokenizer and data, from the options and from the run that is resumed.

use grove::{
    models::{GenerateOptions, ModelError, Tokenizer, generation::Sampling},
    prelude::*,
    train::data::TokenStream,
    weights::FilePatterns,
};
use std::path::{Path, PathBuf};

use super::{
    LanguageArgs, LanguageModel,
    text::{self, Text},
};
use crate::{
    Exit, failure, resolve_named,
    training::{Output, new_model},
};

/// Model and data at the start of a run.
pub struct Prepared<M> {
    pub model: M,
    /// `None` where the data is tokens already, and no tokenizer came with the model.
    pub tokenizer: Option<Tokenizer>,
    /// Training data, or the data of `--evaluate`.
    pub training: TokenStream,
    pub held_out: Option<TokenStream>,
    /// Directory of the model that is fine-tuned.
    pub source: Option<PathBuf>,
}

pub fn prepare<B: Backend, M: LanguageModel<B>>(
    options: &LanguageArgs,
    sizes: &M::Sizes,
    output: &Output,
    device: &B::Device,
) -> Result<Prepared<M>, Exit> {
    let data = text::read(&options.data())?;
    let held_out = if options.held_out.is_empty() { None } else { Some(text::read(&options.held_out)?) };
    let resumed = output.tokenizer()?;
    let source = options.model.as_deref().map(|model| resolve_named(model, &FilePatterns::model())).transpose()?;
    let (model, tokenizer) = match &source {
        Some(path) => existing(options, path, resumed, device)?,
        None => {
            let tokenizer = resumed.map_or_else(|| new_tokenizer(options, &data), |tokenizer| Ok(Some(tokenizer)))?;
            let config = match output.config()? {
                Some(file) => M::resumed_config(sizes, &file)?,
                None => M::new_config(sizes, options, tokenizer.as_ref())?,
            };
            (new_model::<B, M>(&options.run, &config, device)?, tokenizer)
        }
    };
    let model = match options.dropout {
        Some(rate) => model.with_dropout(rate),
        None => model,
    };
    let end = tokenizer.as_ref().map_or(Ok(None), |tokenizer| end_of_document(&model, source.as_deref(), tokenizer))?;
    let tokens = |text: Text| tokens(text, tokenizer.as_ref(), end, model.vocab_size());
    let (training, held_out) = match held_out {
        Some(held_out) => (tokens(data)?, Some(tokens(held_out)?)),
        None if options.evaluate || options.val_fraction == 0.0 => (tokens(data)?, None),
        None => {
            let (training, held_out) = tokens(data)?.split(options.val_fraction).map_err(failure)?;
            (training, Some(held_out))
        }
    };
    Ok(Prepared { model, tokenizer, training, held_out, source })
}

/// The token behind each document, by which the model learns to end one: the tokenizer's own, unless the model's files say
/// that it ends a text by others.
fn end_of_document<B: Backend>(
    model: &impl CausalLm<B>,
    source: Option<&Path>,
    tokenizer: &Tokenizer,
) -> Result<Option<u32>, Exit> {
    let published = source.map(|path| GenerateOptions::published(path, Sampling::default())).transpose();
    let ends = published.map_err(failure)?.and_then(|published| published.end_tokens);
    let ends = ends.unwrap_or_else(|| model.end_tokens());
    let own = tokenizer.end_of_text();
    Ok(own.filter(|token| ends.is_empty() || ends.contains(token)).or(ends.first().copied()).or(own))
}

fn tokens(text: Text, tokenizer: Option<&Tokenizer>, end: Option<u32>, vocab_size: usize) -> Result<TokenStream, Exit> {
    let stream = text.tokens(tokenizer, end)?;
    match stream.largest() {
        Some(largest) if largest as usize >= vocab_size => Err(failure(format!(
            "the data has token {largest}, and the model's vocabulary has {vocab_size} tokens, from 0 on: \
             give a larger --vocab-size for a new model, or the tokenizer that belongs to this one"
        ))),
        _ => Ok(stream),
    }
}

/// A model to fine-tune or to evaluate, and its tokenizer.
fn existing<B: Backend, M: LanguageModel<B>>(
    options: &LanguageArgs,
    path: &Path,
    resumed: Option<Tokenizer>,
    device: &B::Device,
) -> Result<(M, Option<Tokenizer>), Exit> {
    let (model, _) = M::from_path(path, device, None).map_err(failure)?;
    let tokenizer = match (resumed, &options.tokenizer) {
        (Some(tokenizer), _) => Some(tokenizer),
        (None, Some(path)) => Some(Tokenizer::from_path(path).map_err(failure)?),
        (None, None) => match Tokenizer::beside(path) {
            Ok(tokenizer) => Some(tokenizer),
            Err(_) if options.data.iter().any(|file| text::holds_tokens(file)) => None,
            Err(error) => return Err(failure(format!("{error}; --tokenizer names one that lies elsewhere"))),
        },
    };
    Ok((model, tokenizer))
}

/// The tokenizer of a new model: the one that is named, or one learned from the text.
fn new_tokenizer(options: &LanguageArgs, text: &Text) -> Result<Option<Tokenizer>, Exit> {
    match (&options.tokenizer, text) {
        (Some(path), _) => Tokenizer::from_path(path).map(Some).map_err(failure),
        (None, Text::Tokens(_)) => Ok(None),
        (None, Text::Documents(documents)) => match Tokenizer::train_bpe(documents, options.vocab_size) {
            Err(ModelError::Option { value, range, .. }) => {
                Err(Exit::Usage(format!("--vocab-size is {value}; it must be {range}, one for each byte and the end")))
            }
            tokenizer => tokenizer.map(Some).map_err(failure),
        },
    }
}
