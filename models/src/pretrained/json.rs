//! Fields and places of the JSON files beside published weights.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Renames fields from transformers' general names to the names of a struct, unless the file has the latter too.
pub(crate) fn rename(fields: &mut Map<String, Value>, names: &[(&str, &str)]) {
    for (general, own) in names {
        if !fields.contains_key(*own)
            && let Some(value) = fields.remove(*general)
        {
            fields.insert((*own).into(), value);
        }
    }
}

/// Returns the class of transformers that a `config.json` names, such as `GPT2LMHeadModel`.
pub(crate) fn class_name(fields: &Map<String, Value>) -> Option<&str> {
    fields.get("architectures")?.get(0)?.as_str()
}

/// Returns the path of a configuration, given the file or its directory.
pub(super) fn config_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("config.json") } else { path.to_owned() }
}

/// Returns the path of a model's file with this name: in the model's directory, or beside its weights file.
pub(crate) fn file_beside(model: &Path, name: &str) -> PathBuf {
    if model.is_dir() { model.join(name) } else { model.with_file_name(name) }
}

/// Returns the path of the `config.json` of a model: in its directory, or beside its weights file.
pub(crate) fn config_beside(model: &Path) -> PathBuf {
    file_beside(model, "config.json")
}
