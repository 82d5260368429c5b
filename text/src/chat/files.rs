//! Chat templates in the files of repositories.

use std::path::Path;

use serde_json::{Map, Value};

use super::LONGEST;
use crate::{
    error::{Result, TextError},
    files,
    special::special_tokens,
};

/// Returns the template of a directory, and its special tokens by name; `None` if it has no template.
pub(super) fn template(directory: &Path) -> Result<Option<(String, Map<String, Value>)>> {
    let file = directory.join("tokenizer_config.json");
    let config = files::object(&file)?.unwrap_or_default();
    let source = match files::text(&directory.join("chat_template.jinja"), LONGEST as u64)? {
        Some(source) => Some(source),
        None => match entry(&config, &file)? {
            Some(source) => Some(source),
            None => {
                let file = directory.join("chat_template.json");
                entry(&files::object(&file)?.unwrap_or_default(), &file)?
            }
        },
    };
    let Some(source) = source else { return Ok(None) };
    let tokens = special_tokens(directory)?.into_iter().map(|(name, token)| (name, token.into())).collect();
    Ok(Some((source, tokens)))
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
                    let reason = format!("none of its chat templates is named \"default\", but {names:?}");
                    Err(TextError::config(file, reason))
                }
            }
        }
        Some(_) => Err(TextError::config(file, "its chat_template is neither a text nor a list")),
    }
}
