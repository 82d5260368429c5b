//! Model, tokenizer and data of a run, from the options and from the run to resume.

use grove::{
    tasks::generation::document_end,
    tensor::DType,
    train::data::{DataError, LmText, TokenStream},
    weights::TensorFiles,
};

use super::{LanguageArgs, LanguageOptions};
use crate::{
    kind::check_kind,
    prelude::*,
    training::{new_model, new_tokenizer},
};

/// Model and data at the start of a run.
pub struct Prepared<M> {
    pub model: M,
    /// `None` if the data is a token file and the model has no tokenizer.
    pub tokenizer: Option<Tokenizer>,
    /// Training data, or the data of `--evaluate`.
    pub training: TokenStream,
    pub held_out: Option<TokenStream>,
    /// Path of the model to fine-tune.
    pub source: Option<PathBuf>,
}

pub fn prepare<B: Backend, O: LanguageOptions>(
    command: &O,
    output: &RunDirectory,
    device: &B::Device,
) -> Result<Prepared<O::Model<B>>, Exit> {
    let options = command.language();
    let data = read(&options.data(), options.column.name())?;
    let held_out =
        if options.held_out.is_empty() { None } else { Some(read(&options.held_out, options.column.name())?) };
    let resumed = output.tokenizer()?;
    let source = options.model.as_deref().map(resolve_named).transpose()?;
    let (mut model, tokenizer) = match &source {
        Some(path) => {
            check_kind(path, O::KIND)?;
            existing(options, path, resumed, &data, device)?
        }
        None => {
            let tokenizer = new_tokenizer(resumed, options.tokenizer.as_deref(), || match &data {
                LmText::Tokens(_) => Ok(None),
                LmText::Documents(documents) => Tokenizer::train_bpe(documents, options.vocab_size).map(Some),
            })?;
            let config = match output.config()? {
                Some(file) => {
                    let config = O::Config::from_file(file)?;
                    command.check_resumed(&config)?;
                    config
                }
                None => command.new_config(tokenizer.as_ref())?,
            };
            (new_model::<B, O::Model<B>>(&options.run, &config, device)?, tokenizer)
        }
    };
    if let Some(rate) = options.dropout {
        model = model.with_dropout(rate);
    }
    let tokens = |text: LmText| encode_text(text, &model, source.as_deref(), tokenizer.as_ref());
    let (training, held_out) = match held_out {
        Some(held_out) => (tokens(data)?, Some(tokens(held_out)?)),
        None if options.evaluate || options.val_fraction == 0.0 => (tokens(data)?, None),
        None => {
            let (training, held_out) = tokens(data)?.split(options.val_fraction)?;
            (training, Some(held_out))
        }
    };
    Ok(Prepared { model, tokenizer, training, held_out, source })
}

/// Encodes the documents of a text one after another, each followed by the model's end-of-text token.
///
/// - `source`: path of the model's files, which may name the end-of-text token
pub fn encode_text<B: Backend, M: CausalLm<B>>(
    text: LmText,
    model: &M,
    source: Option<&Path>,
    tokenizer: Option<&Tokenizer>,
) -> Result<TokenStream, Exit> {
    let end = tokenizer.map_or(Ok(None), |tokenizer| document_end(model, source, tokenizer))?;
    if let (LmText::Documents(documents), Some(_), None) = (&text, tokenizer, end)
        && documents.len() > 1
    {
        tell(format_args!("the model has no end-of-text token: the documents are joined without one"));
    }
    Ok(text.encode(tokenizer, end, model.vocab_size())?)
}

/// Reads a token file, or files with text.
fn read(paths: &[PathBuf], text_column: &str) -> Result<LmText, Exit> {
    LmText::read(paths, text_column).map_err(|error| match error {
        DataError::SeveralTokenFiles { .. } => usage(error),
        error => error.into(),
    })
}

/// Returns the name of the first quantized tensor of a checkpoint, if there is one.
fn first_quantized(checkpoint: &TensorFiles) -> Option<&str> {
    checkpoint.names().find(|name| checkpoint.info(name).is_ok_and(|info| info.quantized.is_some()))
}

/// Loads a model to fine-tune or evaluate, and its tokenizer.
fn existing<B: Backend, M: Pretrained<B>>(
    options: &LanguageArgs,
    path: &Path,
    resumed: Option<Tokenizer>,
    data: &LmText,
    device: &B::Device,
) -> Result<(M, Option<Tokenizer>), Exit> {
    let files = with_adapter(path, options.adapter.as_deref())?;
    if !options.evaluate
        && let Some(name) = first_quantized(&files.weights()?)
    {
        return Err(failure(format!(
            "{}: its weights are quantized (the first is {name}) and cannot be trained: name the original model, or convert \
             this one with `grove convert`",
            path.display()
        )));
    }
    // Trained weights are f32 whatever the file's type, because updates are too small for 16 bits. `--dtype` is the compute type.
    let dtype = (!options.evaluate).then_some(DType::F32);
    let (model, _) = files.load::<B, M>(device, dtype)?;
    let tokenizer = match resumed {
        Some(tokenizer) => Some(tokenizer),
        None => existing_tokenizer(options.tokenizer.as_deref(), &files, data)?,
    };
    Ok((model, tokenizer))
}

/// Returns the tokenizer of `--tokenizer` or of a model; `None` if the data is a token file and the model has no tokenizer.
pub fn existing_tokenizer(named: Option<&Path>, model: &ModelFiles, data: &LmText) -> Result<Option<Tokenizer>, Exit> {
    match named.map_or_else(|| Tokenizer::beside(model.tokenizer()), Tokenizer::from_path) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(error) if named.is_some() => Err(error.into()),
        Err(_) if matches!(data, LmText::Tokens(_)) => Ok(None),
        Err(error) => Err(failure(format!("{error}; give its path with --tokenizer"))),
    }
}
