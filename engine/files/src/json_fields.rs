//! Fields of a JSON file that are read one by one. No key that changes a result is ignored: each is followed, known to
//! have no effect, or refused by name. Keys that none of the publishing libraries reads have no effect.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::{
    FileError, KnownKeys,
    printable::{error_message, excerpt},
};

/// Fields of a JSON file that are read one by one, with a record of their keys. Errors name the file and the key.
///
/// ```
/// use grove_files::{JsonFields, KnownKeys, RefusedKey};
/// const KEYS: KnownKeys = KnownKeys {
///     followed: &["top_k"],
///     without_effect: &[],
///     refused: &[RefusedKey { key: "num_beams", neutral: &["1"], instead: "set it to 1" }],
/// };
/// let fields = [("top_k".to_owned(), 50.into()), ("num_beams".to_owned(), 4.into())].into_iter().collect();
/// let mut fields = JsonFields::new("generation_config.json".as_ref(), fields);
/// assert_eq!(fields.get::<usize>("top_k")?, Some(50));
/// let error = fields.check(&KEYS).unwrap_err().to_string();
/// assert!(error.starts_with("generation_config.json: num_beams is 4"));
/// # Ok::<(), grove_files::FileError>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonFields {
    file: PathBuf,
    fields: Map<String, Value>,
    read_keys: BTreeSet<&'static str>,
}

impl JsonFields {
    /// Wraps the fields of a file.
    pub fn new(file: &Path, fields: Map<String, Value>) -> Self {
        Self { file: file.into(), fields, read_keys: BTreeSet::new() }
    }

    /// Returns the keys that were read.
    pub fn read_keys(&self) -> &BTreeSet<&'static str> {
        &self.read_keys
    }

    /// Returns the value of a key; `None` if it is absent or null.
    ///
    /// # Errors
    /// [`FileError::Json`] if the value has another type.
    pub fn get<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>, FileError> {
        self.read_keys.insert(key);
        let Some(value) = self.fields.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        match T::deserialize(value) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(self.error(format!("`{key}` is {}: {error}", short(value)))),
        }
    }

    /// Returns the fields without some keys.
    #[must_use]
    pub fn without(mut self, keys: &[&str]) -> Self {
        self.fields.retain(|key, _| !keys.contains(&key.as_str()));
        self
    }

    /// Refuses keys that would change a result, and names unknown keys once on standard error.
    ///
    /// # Errors
    /// [`FileError::Json`] for a refused key, with the file, the key, its value and the workaround.
    pub fn check(&self, known: &KnownKeys) -> Result<(), FileError> {
        check_keys(known, &self.file, &self.fields)
    }

    /// Returns an error about the file.
    pub fn error(&self, reason: String) -> FileError {
        FileError::json(&self.file, error_message(&reason))
    }
}

/// Checks the keys of a file.
///
/// # Errors
/// [`FileError::Json`] for a refused key, with the file, the key, its value and the remedy.
pub fn check_keys(known: &KnownKeys, file: &Path, fields: &Map<String, Value>) -> Result<(), FileError> {
    known.check(file, fields).map_err(|reason| FileError::json(file, reason))
}

/// Returns a value as errors quote it.
fn short(value: &Value) -> String {
    excerpt(&value.to_string(), 60)
}
