//! Reading of untrusted files.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use grove_files::{FileError, printable::excerpt};
use serde_json::{Map, Value};

use crate::error::{Result, TextError};

/// Maximum size of a configuration file in bytes. The largest published ones, with thousands of added tokens, have a
/// few megabytes.
const LARGEST_JSON: u64 = 32 << 20;

/// Reads a file of at most `largest` bytes; `None` if it does not exist.
pub(crate) fn read(path: &Path, largest: u64) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FileError::io("open", path)(error).into()),
    };
    if !file.metadata().map_err(FileError::io("read", path))?.is_file() {
        return Err(TextError::config(path, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(largest + 1).read_to_end(&mut bytes).map_err(FileError::io("read", path))?;
    if bytes.len() as u64 > largest {
        let reason = format!("it exceeds the limit of {} MiB", largest >> 20);
        return Err(TextError::config(path, reason));
    }
    Ok(Some(bytes))
}

/// Reads a UTF-8 text file; `None` if it does not exist.
pub(crate) fn text(path: &Path, largest: u64) -> Result<Option<String>> {
    let Some(bytes) = read(path, largest)? else { return Ok(None) };
    String::from_utf8(bytes).map(Some).map_err(|_| TextError::config(path, "it is not in UTF-8"))
}

/// Reads a JSON object; `None` if the file does not exist.
pub(crate) fn object(path: &Path) -> Result<Option<Map<String, Value>>> {
    let Some(bytes) = read(path, LARGEST_JSON)? else { return Ok(None) };
    match grove_files::parse_json(&bytes) {
        Ok(Value::Object(object)) => Ok(Some(object)),
        Ok(_) => Err(TextError::config(path, "it is not a JSON object")),
        Err(error) => Err(TextError::config(path, format!("it is not JSON: {error}"))),
    }
}

/// Returns a boolean entry of a configuration; `None` if it is missing or null.
pub(crate) fn flag(file: &Path, fields: &Map<String, Value>, name: &str) -> Result<Option<bool>> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(other) => Err(out_of_range(file, name, other, "true or false")),
    }
}

/// Returns the error for an entry of a configuration that is not in its range.
pub(crate) fn out_of_range(file: &Path, name: &str, value: &Value, range: &str) -> TextError {
    TextError::config(file, format!("{name} is {}; it must be {range}", excerpt(&value.to_string(), 100)))
}

/// Returns the text of a token in a configuration: a string, or the `content` of an object.
pub(crate) fn token(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("content")?.as_str())
}
