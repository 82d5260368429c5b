//! Reading and writing the JSON files beside published weights.

use grove_text::printable::error_message;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

use crate::error::{ModelError, Result};

/// Largest JSON file that is read: a configuration has kilobytes, a large tokenizer some ten megabytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Reads a JSON file into a value.
///
/// # Errors
/// [`ModelError::Io`] if it cannot be read, [`ModelError::Json`] where it is no such JSON.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let io = |source| ModelError::Io { file: file.into(), source };
    let len = std::fs::metadata(file).map_err(io)?.len();
    if len > MAX_JSON_BYTES {
        let reason = format!("{len} bytes are too many for such a file");
        return Err(ModelError::Json { file: file.into(), reason });
    }
    let bytes = std::fs::read(file).map_err(io)?;
    // The error may quote a value of the file, however long.
    let json = |error: String| ModelError::Json { file: file.into(), reason: error_message(&error) };
    grove_files::parse_json(&bytes).map_err(json)
}

/// Reads a JSON file of fields into a value, after `edit` has changed them.
///
/// # Errors
/// As [`read_json`].
pub(crate) fn read_fields<T: DeserializeOwned>(file: &Path, edit: impl FnOnce(&mut Map<String, Value>)) -> Result<T> {
    let mut fields: Map<String, Value> = read_json(file)?;
    edit(&mut fields);
    let json = |error: String| ModelError::Json { file: file.into(), reason: error_message(&error) };
    grove_files::from_json(Value::Object(fields)).map_err(json)
}

/// Gives fields the names of a struct, where a file has them under transformers' general ones only.
pub(crate) fn rename(fields: &mut Map<String, Value>, names: &[(&str, &str)]) {
    for (general, own) in names {
        if !fields.contains_key(*own)
            && let Some(value) = fields.remove(*general)
        {
            fields.insert((*own).into(), value);
        }
    }
}

/// Path of a configuration that is given by its file or its directory.
pub(super) fn config_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("config.json") } else { path.to_owned() }
}

/// The `config.json` that belongs to a model: in its directory, or beside its weights file.
pub(crate) fn config_beside(model: &Path) -> PathBuf {
    if model.is_dir() { model.join("config.json") } else { model.with_file_name("config.json") }
}

/// Writes a value as JSON beside the old file and takes its name at the end.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })?;
    write_text(file, &text)
}

/// Writes a text beside the old file and takes its name at the end.
pub(crate) fn write_text(file: &Path, text: &str) -> Result<()> {
    let written = grove_files::write_atomically(file, |writer| writer.write_all(text.as_bytes()));
    Ok(written.map_err(grove_weights::WeightsError::from)?)
}
