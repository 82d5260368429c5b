//! Reading and writing of the JSON files beside published weights.

use grove_text::printable::error_message;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

use crate::error::{ModelError, Result};

/// Maximum size of a JSON file. A configuration has kilobytes, a large tokenizer about ten megabytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Deserialises a JSON file.
///
/// # Errors
/// [`ModelError::Io`] if the file cannot be read, [`ModelError::Json`] if it is not valid JSON or does not match the
/// type.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let io = |source| ModelError::Io { file: file.into(), source };
    let len = std::fs::metadata(file).map_err(io)?.len();
    if len > MAX_JSON_BYTES {
        let reason = format!("it has {len} bytes, which is too large for a JSON configuration");
        return Err(ModelError::Json { file: file.into(), reason });
    }
    let bytes = std::fs::read(file).map_err(io)?;
    // The error can quote a value of the file, of any length.
    let json = |error: String| ModelError::Json { file: file.into(), reason: error_message(&error) };
    grove_files::parse_json(&bytes).map_err(json)
}

/// Deserialises a JSON object after `edit` has changed its fields.
///
/// # Errors
/// As [`read_json`].
pub(crate) fn read_fields<T: DeserializeOwned>(file: &Path, edit: impl FnOnce(&mut Map<String, Value>)) -> Result<T> {
    let mut fields: Map<String, Value> = read_json(file)?;
    edit(&mut fields);
    let json = |error: String| ModelError::Json { file: file.into(), reason: error_message(&error) };
    grove_files::from_json(Value::Object(fields)).map_err(json)
}

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

/// Writes a value as JSON, replacing an existing file atomically.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })?;
    write_text(file, &text)
}

/// Writes text, replacing an existing file atomically.
pub(crate) fn write_text(file: &Path, text: &str) -> Result<()> {
    let written = grove_files::write_atomically(file, |writer| writer.write_all(text.as_bytes()));
    Ok(written.map_err(grove_weights::WeightsError::from)?)
}
