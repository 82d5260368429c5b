//! Model, tokenizer and data, from the options and from the run that is resumed.

use grove::{
    models::{Gpt2, Gpt2Config, ModelError, Tokenizer},
    prelude::*,
    train::data::TokenStream,
    weights::{HubOptions, Source, Wanted},
};
use std::path::Path;

use crate::{
    common::{Exit, shipped},
    options::Options,
    output::Output,
    text::{self, Text, failure},
};

/// What a run begins with.
pub struct Prepared<B: Backend> {
    pub model: Gpt2<B>,
    /// `None` where the data is tokens already, and no tokenizer came with the model.
    pub tokenizer: Option<Tokenizer>,
    /// What is trained on, or evaluated with `--evaluate`.
    pub training: TokenStream,
    pub held_out: Option<TokenStream>,
}

pub fn prepare<B: Backend>(
    options: &Options,
    output: Option<&Output>,
    device: &B::Device,
) -> Result<Prepared<B>, Exit> {
    let demonstration = [shipped("gpt2-austen/held_out.txt")];
    let data = text::read(if options.data.is_empty() { &demonstration } else { &options.data })?;
    let held_out = if options.held_out.is_empty() { None } else { Some(text::read(&options.held_out)?) };
    let resumed = output.map_or(Ok(None), Output::tokenizer)?;
    let (model, tokenizer) = match &options.model {
        Some(model) => existing(options, model, resumed, device)?,
        None => {
            let tokenizer = resumed.map_or_else(|| new_tokenizer(options, &data), |tokenizer| Ok(Some(tokenizer)))?;
            let config = match output.map_or(Ok(None), Output::config)? {
                Some(config) => same_config(options, config)?,
                None => new_config(options, tokenizer.as_ref())?,
            };
            let key = Key::new(options.seed).fold_in(1);
            (Gpt2::init(&config, key, device).map_err(|error| Exit::Usage(error.to_string()))?, tokenizer)
        }
    };
    let tokens = |text: Text| tokens(text, tokenizer.as_ref(), model.config.vocab_size);
    let (training, held_out) = match held_out {
        Some(held_out) => (tokens(data)?, Some(tokens(held_out)?)),
        None if options.evaluate || options.held_out_part == 0.0 => (tokens(data)?, None),
        None => {
            let (training, held_out) = tokens(data)?.split(options.held_out_part).map_err(failure)?;
            (training, Some(held_out))
        }
    };
    Ok(Prepared { model, tokenizer, training, held_out })
}

fn tokens(text: Text, tokenizer: Option<&Tokenizer>, vocab_size: usize) -> Result<TokenStream, Exit> {
    let stream = text.tokens(tokenizer)?;
    match stream.largest() {
        Some(largest) if largest as usize >= vocab_size => Err(failure(format!(
            "the data has token {largest}, and the model's vocabulary has {vocab_size} tokens, from 0 on: \
             give a larger --vocab-size for a new model, or the tokenizer that belongs to this one"
        ))),
        _ => Ok(stream),
    }
}

/// A model to fine-tune or to evaluate, and its tokenizer.
fn existing<B: Backend>(
    options: &Options,
    model: &str,
    resumed: Option<Tokenizer>,
    device: &B::Device,
) -> Result<(Gpt2<B>, Option<Tokenizer>), Exit> {
    let source = Source::parse(model).map_err(failure)?;
    let path = source.resolve(&HubOptions::from_env(), &Wanted::model()).map_err(failure)?;
    let (mut model, _) = Gpt2::<B>::from_path(&path, device, None).map_err(failure)?;
    if let Some(dropout) = options.dropout {
        set_dropout(&mut model.config, dropout);
    }
    let directory = if path.is_dir() { &*path } else { path.parent().unwrap_or(&path) };
    let tokenizer = match (resumed, &options.tokenizer) {
        (Some(tokenizer), _) => Some(tokenizer),
        (None, Some(path)) => Some(Tokenizer::from_path(path).map_err(failure)?),
        (None, None) => match Tokenizer::from_path(directory) {
            Ok(tokenizer) => Some(tokenizer),
            Err(_) if options.data.iter().any(|file| text::holds_tokens(file)) => None,
            Err(error) => return Err(failure(format!("{error}; --tokenizer names one that lies elsewhere"))),
        },
    };
    Ok((model, tokenizer))
}

/// The tokenizer of a new model: the one that is named, or one learned from the text.
fn new_tokenizer(options: &Options, text: &Text) -> Result<Option<Tokenizer>, Exit> {
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

fn new_config(options: &Options, tokenizer: Option<&Tokenizer>) -> Result<Gpt2Config, Exit> {
    let mut config = match &options.config {
        None => Gpt2Config { n_layer: 4, n_head: 4, n_embd: 128, n_positions: 128, ..Gpt2Config::default() },
        Some(file) if Path::new(file).exists() => Gpt2Config::from_file(file).map_err(failure)?,
        Some(name) => Gpt2Config::preset(name).map_err(|error| {
            Exit::Usage(format!("--config '{name}' is not a file that exists, nor a published size: {error}"))
        })?,
    };
    config.n_layer = options.n_layer.unwrap_or(config.n_layer);
    config.n_head = options.n_head.unwrap_or(config.n_head);
    config.n_embd = options.n_embd.unwrap_or(config.n_embd);
    config.n_positions = options.context.unwrap_or(config.n_positions);
    config.vocab_size = tokenizer.map_or(options.vocab_size, Tokenizer::vocab_size);
    config.eos_token_id = tokenizer.and_then(Tokenizer::end_of_text);
    config.bos_token_id = config.eos_token_id;
    if let Some(dropout) = options.dropout {
        set_dropout(&mut config, dropout);
    }
    Ok(config)
}

/// The sizes of the run that is resumed, where the options do not say otherwise. (The number of heads shows in no
/// shape, so the checkpoint alone would not tell.)
fn same_config(options: &Options, mut config: Gpt2Config) -> Result<Gpt2Config, Exit> {
    for (name, asked, has) in [
        ("n-layer", options.n_layer, config.n_layer),
        ("n-head", options.n_head, config.n_head),
        ("n-embd", options.n_embd, config.n_embd),
    ] {
        if let Some(asked) = asked.filter(|asked| *asked != has) {
            return Err(Exit::Usage(format!("--{name} is {asked}, and the run to resume has {has}: leave it out")));
        }
    }
    if let Some(dropout) = options.dropout {
        set_dropout(&mut config, dropout);
    }
    Ok(config)
}

fn set_dropout(config: &mut Gpt2Config, rate: f64) {
    (config.embd_pdrop, config.attn_pdrop, config.resid_pdrop) = (rate, rate, rate);
}
