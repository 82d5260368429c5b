//! Tokenizers and chat templates of large models, from SentencePiece and GGUF files.

use grove_text::{chat::ChatTemplate, ggml::Vocabulary, sentencepiece};
use grove_weights::{GgufMetadata, TensorFiles};
use std::{collections::BTreeMap, ffi::OsStr, path::Path};
use tokenizers::Tokenizer as HfTokenizer;

use super::{Found, class::Settings};
use crate::{
    error::{ModelError, Result},
    model_files::tokenizer_place,
};

/// Returns true if a file has the extension `gguf` (llama.cpp).
pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("gguf"))
}

/// Reads the tokenizer of a GGUF or SentencePiece file; `None` for other files.
pub(super) fn from_file(path: &Path) -> Result<Option<(HfTokenizer, Found)>> {
    if is_gguf(path) {
        let checkpoint = TensorFiles::open(path)?;
        return checkpoint.gguf().map(|metadata| from_metadata(metadata, path)).transpose();
    }
    let is_model = path.extension() == Some(OsStr::new("model")) && path.is_file();
    Ok(if is_model { Some((sentencepiece::from_file(path)?, Found::Files)) } else { None })
}

/// Reads the tokenizer of a directory without other tokenizer files.
pub(super) fn from_directory(directory: &Path) -> Result<Option<(HfTokenizer, Found)>> {
    let model = directory.join("tokenizer.model");
    if model.is_file() {
        return from_file(&model);
    }
    // Other errors in the weights are reported when they are loaded.
    let Ok(checkpoint) = TensorFiles::open(directory) else { return Ok(None) };
    checkpoint.gguf().map(|metadata| from_metadata(metadata, directory)).transpose()
}

fn from_metadata(metadata: &GgufMetadata, file: &Path) -> Result<(HfTokenizer, Found)> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let texts = |name: &str| -> Option<Vec<String>> {
        Some(metadata.strings(&key(name))?.into_iter().map(str::to_owned).collect())
    };
    let token = |name: &str| metadata.integer(&key(&format!("{name}_token_id"))).and_then(|id| u32::try_from(id).ok());
    let broken = |reason: String| ModelError::Tokenizer { path: file.into(), reason };
    let (Some(model), Some(tokens)) = (metadata.string(&key("model")), texts("tokens")) else {
        return Err(ModelError::NoTokenizer { path: file.into(), reason: "the file has no tokenizer".into() });
    };
    let vocabulary = Vocabulary {
        model: model.into(),
        pre: metadata.string(&key("pre")).map(str::to_owned),
        tokens,
        scores: metadata.floats(&key("scores")).map(|scores| scores.into_iter().map(|score| score as f32).collect()),
        token_types: metadata
            .integers(&key("token_type"))
            .map(|kinds| kinds.into_iter().map(|kind| kind as i32).collect()),
        merges: texts("merges"),
        bos: token("bos"),
        eos: token("eos"),
        unknown: token("unknown"),
        padding: token("padding"),
        add_bos: metadata.boolean(&key("add_bos_token")),
        add_eos: metadata.boolean(&key("add_eos_token")),
        add_space_prefix: metadata.boolean(&key("add_space_prefix")),
    };
    let tokenizer = vocabulary.tokenizer().map_err(|error| broken(error.to_string()))?;
    Ok((tokenizer, Found::Gguf(roles(metadata), metadata.string(TEMPLATE).map(str::to_owned))))
}

/// Metadata key of a GGUF file's chat template.
const TEMPLATE: &str = "tokenizer.chat_template";

/// Returns the special tokens of a GGUF file by role, under transformers' names.
fn roles(metadata: &GgufMetadata) -> BTreeMap<String, String> {
    let tokens = metadata.strings("tokenizer.ggml.tokens").unwrap_or_default();
    let purposes = [("bos_token", "bos"), ("eos_token", "eos"), ("unk_token", "unknown"), ("pad_token", "padding")];
    let token = |name: &str| {
        let id = metadata.integer(&format!("tokenizer.ggml.{name}_token_id"))?;
        tokens.get(usize::try_from(id).ok()?).copied()
    };
    purposes.iter().filter_map(|&(role, name)| Some((role.to_owned(), token(name)?.to_owned()))).collect()
}

/// Returns the chat template of a model's files; `None` if there is none.
///
/// # Errors
/// A file cannot be read, or contains an invalid template.
pub fn chat_template(model: impl AsRef<Path>) -> Result<Option<ChatTemplate>> {
    let model = &*tokenizer_place(model.as_ref())?;
    let directory = grove_files::directory_at(model);
    if !is_gguf(model)
        && let Some(template) = ChatTemplate::from_directory(directory)?
    {
        let model = directory.join("tokenizer.model").is_file() && !directory.join("tokenizer.json").is_file();
        return Ok(Some(template.or_variables(Settings::read(directory)?.unnamed(model))));
    }
    let checkpoint = TensorFiles::open(model)?;
    let Some(metadata) = checkpoint.gguf() else { return Ok(None) };
    let Some(source) = metadata.string(TEMPLATE) else { return Ok(None) };
    Ok(Some(ChatTemplate::of_file(model, source, roles(metadata))?))
}
