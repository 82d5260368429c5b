//! Tokenizers and chat templates of large models, from SentencePiece and GGUF files.

use grove_weights::{GgufMetadata, TensorFiles, is_gguf, tokenizer_place};
use std::{collections::BTreeMap, ffi::OsStr, path::Path};
use tokenizers::Tokenizer as HfTokenizer;

use super::{
    Found,
    class::{Class, Settings},
    gguf_keys,
};
use crate::{
    chat::ChatTemplate,
    error::{Result, TextError},
    ggml::Vocabulary,
    sentencepiece,
};

/// SentencePiece models, by the names under which transformers finds them. Classes that read the later ones change the
/// ids of the pieces or the spaces of texts.
const MODELS: [&str; 3] = ["tokenizer.model", "sentencepiece.bpe.model", "spiece.model"];

/// Returns the settings beside a SentencePiece model. Refuses a model that transformers reads by another class than
/// LLaMA's.
fn settings_of(model: &Path) -> Result<Settings> {
    let settings = Settings::read(grove_files::directory_at(model))?;
    let name = model.file_name().unwrap_or_default().to_string_lossy();
    match settings.class {
        Class::Llama | Class::Whole { .. } if !MODELS[1..].contains(&&*name) => Ok(settings),
        _ => Err(settings.not_from(&format!("a {name}"), model)),
    }
}

/// Reads the tokenizer of a GGUF or SentencePiece file; `None` for other files.
pub(super) fn from_file(path: &Path) -> Result<Option<(HfTokenizer, Found)>> {
    if is_gguf(path) {
        let checkpoint = TensorFiles::open(path)?;
        return checkpoint.gguf().map(|metadata| from_metadata(metadata, path)).transpose();
    }
    if path.extension() != Some(OsStr::new("model")) || !path.is_file() {
        return Ok(None);
    }
    let settings = settings_of(path)?;
    Ok(Some((sentencepiece::from_file(path)?, Found::Files(Box::new(settings)))))
}

/// Reads the tokenizer of a directory without other tokenizer files.
pub(super) fn from_directory(directory: &Path) -> Result<Option<(HfTokenizer, Found)>> {
    if let Some(model) = MODELS.map(|name| directory.join(name)).into_iter().find(|model| model.is_file()) {
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
    let broken = |reason: String| TextError::tokenizer(file, reason);
    let (Some(model), Some(tokens)) = (metadata.string(&key("model")), texts("tokens")) else {
        let reason = match metadata.get(JSON) {
            Some(_) => format!("its tokenizer is in {JSON} alone, which is not read: save that text as tokenizer.json"),
            None => "the file has no tokenizer".into(),
        };
        return Err(TextError::NoTokenizer { path: file.into(), reason });
    };
    gguf_keys::check(metadata, file).map_err(broken)?;
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

/// Metadata key of a whole `tokenizer.json`.
const JSON: &str = "tokenizer.huggingface.json";

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
    let Some(source) = metadata.string(TEMPLATE) else {
        let named = |key: &str| key.strip_prefix(TEMPLATE).is_some_and(|name| name.starts_with('.'));
        let Some((key, _)) = metadata.iter().find(|(key, _)| named(key)) else { return Ok(None) };
        let reason = format!(
            "it has the chat template {key}, but none under {TEMPLATE}, the default: save the one that you want as \
             chat_template.jinja beside the file, and name their directory"
        );
        return Err(TextError::tokenizer(model, reason));
    };
    Ok(Some(ChatTemplate::of_file(model, source, roles(metadata))?))
}
