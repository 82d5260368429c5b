//! Chat templates in the files of repositories.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::LONGEST;
use crate::{
    error::{Result, TextError},
    files,
    special::special_tokens,
};

/// The template of a directory, with its special tokens.
pub(super) struct Found {
    pub source: String,
    /// Special tokens by name.
    pub tokens: Map<String, Value>,
    /// File that contains the template.
    pub file: PathBuf,
}

/// Returns the template of a directory; `None` if it has no template.
pub(super) fn template(directory: &Path) -> Result<Option<Found>> {
    let named = ["chat_template.jinja", "tokenizer_config.json", "chat_template.json"].map(|name| directory.join(name));
    let [jinja, json @ ..] = named;
    let mut found = files::text(&jinja, LONGEST as u64)?.map(|source| (source, jinja));
    for file in json {
        if found.is_none() {
            found = entry(&files::object(&file)?.unwrap_or_default(), &file)?.map(|source| (source, file));
        }
    }
    let Some((source, file)) = found else { return Ok(None) };
    let tokens = special_tokens(directory)?.into_iter().map(|(name, token)| (name, token.into())).collect();
    Ok(Some(Found { source, tokens, file }))
}

/// Reads the entry `chat_template`: a string, or a list of named strings.
fn entry(config: &Map<String, Value>, file: &Path) -> Result<Option<String>> {
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => Ok(Some(source.clone())),
        Some(Value::Array(templates)) => {
            let name = |template: &Value| template.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            let default = templates.iter().find(|template| name(template) == "default");
            match default.and_then(|template| template.get("template")?.as_str()) {
                Some(source) => Ok(Some(source.to_owned())),
                None => {
                    let names: Vec<String> = templates.iter().map(name).collect();
                    let reason = format!("its chat templates are named {names:?}, and none is named \"default\"");
                    Err(TextError::config(file, reason))
                }
            }
        }
        Some(_) => Err(TextError::config(file, "its chat_template is neither a text nor a list")),
    }
}
