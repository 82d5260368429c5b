//! Reading and writing the JSON files beside published weights.

use grove_text::printable::error_message;
use serde::{Serialize, de::DeserializeOwned};
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
    let json =
        |error: serde_json::Error| ModelError::Json { file: file.into(), reason: error_message(&error.to_string()) };
    serde_json::from_slice(&bytes).map_err(json)
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
