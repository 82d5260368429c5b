//! Reading and writing the JSON files beside published weights.

use serde::de::DeserializeOwned;
use std::path::Path;

use crate::error::{ModelError, Result};

/// Largest JSON file that is read: a configuration has kilobytes, a large tokenizer some ten megabytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Reads a JSON file into a value.
///
/// # Errors
/// [`ModelError::Io`] where it cannot be read, [`ModelError::Json`] where it is no such JSON.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let io = |source| ModelError::Io { file: file.into(), source };
    let len = std::fs::metadata(file).map_err(io)?.len();
    if len > MAX_JSON_BYTES {
        let reason = format!("{len} bytes are too many for such a file");
        return Err(ModelError::Json { file: file.into(), reason });
    }
    let bytes = std::fs::read(file).map_err(io)?;
    serde_json::from_slice(&bytes).map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })
}

/// Writes a value as JSON beside the old file and takes its name at the end.
pub(crate) fn write_json(file: &Path, value: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })?;
    write_text(file, &text)
}

/// Writes a text beside the old file and takes its name at the end.
pub(crate) fn write_text(file: &Path, text: &str) -> Result<()> {
    grove_weights::write_atomically(file, |writer| {
        std::io::Write::write_all(writer, text.as_bytes()).map_err(|source| grove_weights::WeightsError::Io {
            action: "write",
            path: file.into(),
            source,
        })
    })?;
    Ok(())
}
