//! Chat templates in the files of repositories.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use grove_files::FileError;
use serde_json::{Map, Value};

use super::LONGEST;
use crate::{
    error::{Result, TextError},
    files,
    special::special_tokens,
};

/// Folder of the chat templates of a model that has several, each named by its file: `tool_use.jinja`.
pub const ADDITIONAL_TEMPLATES: &str = "additional_chat_templates";

/// The template of a directory, with its special tokens.
pub(super) struct Found {
    pub source: String,
    /// Special tokens by name.
    pub tokens: Map<String, Value>,
    /// File that contains the template.
    pub file: PathBuf,
}

/// Returns the template of a directory; `None` if it has no template. As in transformers, templates in files of their
/// own take precedence over those of a configuration, and of several templates the one named `default` is used, which a
/// conversation without tools needs.
pub(super) fn template(directory: &Path) -> Result<Option<Found>> {
    let folder = directory.join(ADDITIONAL_TEMPLATES);
    let mut found: Option<(String, PathBuf)> = None;
    for file in [folder.join("default.jinja"), directory.join("chat_template.jinja")] {
        if found.is_none() {
            found = files::text(&file, LONGEST as u64)?.map(|source| (source, file));
        }
    }
    let others = if found.is_none() { additional_templates(directory)? } else { Vec::new() };
    if !others.is_empty() {
        let reason = format!(
            "its chat templates are {others:?}, but none is `default.jinja`; rename the template for conversations, \
             or copy it to chat_template.jinja beside the folder"
        );
        return Err(TextError::config(&folder, reason));
    }
    for file in ["tokenizer_config.json", "chat_template.json"].map(|name| directory.join(name)) {
        if found.is_none() {
            found = entry(&files::object(&file)?.unwrap_or_default(), &file)?.map(|source| (source, file));
        }
    }
    let Some((source, file)) = found else { return Ok(None) };
    let tokens = special_tokens(directory)?.into_iter().map(|(name, token)| (name, token.into())).collect();
    Ok(Some(Found { source, tokens, file }))
}

/// Returns the file names of the chat templates in the folder [`ADDITIONAL_TEMPLATES`] of a model's directory, sorted;
/// empty if there is no such folder.
///
/// # Errors
/// The folder cannot be read.
pub fn additional_templates(directory: impl AsRef<Path>) -> Result<Vec<String>> {
    let folder = directory.as_ref().join(ADDITIONAL_TEMPLATES);
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(error) => return Err(FileError::io("read", folder)(error).into()),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(FileError::io("read", folder.as_path()))?.file_name().into_string();
        names.extend(name.ok().filter(|name| name.ends_with(".jinja")));
    }
    names.sort();
    Ok(names)
}

/// Reads the entry `chat_template`: a string, or a list of named strings.
fn entry(config: &Map<String, Value>, file: &Path) -> Result<Option<String>> {
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(source)) => Ok(Some(source.clone())),
        Some(Value::Array(templates)) => {
            let name = |template: &Value| template.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            // As in transformers, of several templates with the same name the last one is used.
            let default = templates.iter().rfind(|template| name(template) == "default");
            match default.and_then(|template| template.get("template")?.as_str()) {
                Some(source) => Ok(Some(source.to_owned())),
                None => {
                    let names: Vec<String> = templates.iter().map(name).collect();
                    let reason = format!("its chat templates are named {names:?}, but none is named `default`");
                    Err(TextError::config(file, reason))
                }
            }
        }
        Some(_) => Err(TextError::config(file, "its chat_template is neither a text nor a list")),
    }
}
