//! Reading and writing of JSON files.

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::path::Path;

use crate::{FileError, from_json, parse_json, printable::error_message, write_atomically};

/// Maximum size of a JSON file. A configuration has kilobytes, a large tokenizer about ten megabytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Deserialises a JSON file.
///
/// # Errors
/// [`FileError::Io`] if the file cannot be read, [`FileError::Json`] if it is not valid JSON or does not match the type.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T, FileError> {
    let len = std::fs::metadata(file).map_err(FileError::at(file))?.len();
    if len > MAX_JSON_BYTES {
        return Err(FileError::json(file, format!("it has {len} bytes, which is too large for a JSON configuration")));
    }
    let bytes = std::fs::read(file).map_err(FileError::at(file))?;
    // The error can quote a value of the file, of any length.
    parse_json(&bytes).map_err(|error| FileError::json(file, error_message(&error)))
}

/// Deserialises a JSON object after `edit` has changed its fields.
///
/// # Errors
/// As [`read_json`].
pub fn read_fields<T: DeserializeOwned>(
    file: &Path,
    edit: impl FnOnce(&mut Map<String, Value>),
) -> Result<T, FileError> {
    let mut fields: Map<String, Value> = read_json(file)?;
    edit(&mut fields);
    from_json(Value::Object(fields)).map_err(|error| FileError::json(file, error_message(&error)))
}

/// Writes a value as JSON, replacing an existing file atomically.
///
/// # Errors
/// [`FileError::Json`] if the value has no form in JSON, [`FileError::System`] if the file cannot be written.
pub fn write_json(file: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| FileError::json(file, error.to_string()))?;
    write_text(file, &text)
}

/// Writes text, replacing an existing file atomically.
///
/// # Errors
/// [`FileError::System`] if the file cannot be written.
pub fn write_text(file: &Path, text: &str) -> Result<(), FileError> {
    write_atomically(file, |writer| writer.write_all(text.as_bytes()))
}
