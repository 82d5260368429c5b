//! Keys of JSON configuration files. No key that changes a result is ignored: each is followed, known to have no
//! effect, or refused by name. Keys that none of the publishing libraries reads have no effect.

use grove_files::{
    KnownKeys,
    printable::{error_message, excerpt},
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use crate::error::{ModelError, Result};

/// Fields of a JSON file that are read one by one, with a record of their keys. Errors name the file and the key.
///
/// ```
/// use grove_models::{GENERATION_KEYS, JsonFields};
/// let fields = [("top_k".to_owned(), 50.into()), ("num_beams".to_owned(), 4.into())].into_iter().collect();
/// let mut fields = JsonFields::new("generation_config.json".as_ref(), fields);
/// assert_eq!(fields.get::<usize>("top_k")?, Some(50));
/// let error = fields.check(&GENERATION_KEYS).unwrap_err().to_string();
/// assert!(error.starts_with("generation_config.json: num_beams is 4"));
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct JsonFields {
    file: PathBuf,
    fields: Map<String, Value>,
    asked: BTreeSet<&'static str>,
}

impl JsonFields {
    /// Wraps the fields of a file.
    pub fn new(file: &Path, fields: Map<String, Value>) -> Self {
        Self { file: file.into(), fields, asked: BTreeSet::new() }
    }

    /// Returns the keys that were read.
    pub fn asked(&self) -> &BTreeSet<&'static str> {
        &self.asked
    }

    /// Returns the value of a key; `None` if it is absent or null.
    ///
    /// # Errors
    /// [`ModelError::Json`] if the value has another type.
    pub fn get<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>> {
        self.asked.insert(key);
        let Some(value) = self.fields.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        match T::deserialize(value) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(self.wrong(format!("`{key}` is {}: {error}", short(value)))),
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
    /// [`ModelError::Json`] for a refused key, with the file, the key, its value and the workaround.
    pub fn check(&self, known: &KnownKeys) -> Result<()> {
        check_keys(known, &self.file, &self.fields)
    }

    /// Returns an error about the file.
    pub fn wrong(&self, reason: String) -> ModelError {
        ModelError::Json { file: self.file.clone(), reason: error_message(&reason) }
    }
}

/// Checks the keys of a file.
///
/// # Errors
/// [`ModelError::Json`] for a refused key, with the file, the key, its value and the remedy.
pub(crate) fn check_keys(known: &KnownKeys, file: &Path, fields: &Map<String, Value>) -> Result<()> {
    known.check(file, fields).map_err(|reason| ModelError::Json { file: file.into(), reason })
}

/// Returns the keys of a configuration class of transformers. Fixture: tools/fixtures/config_keys.py.
#[cfg(test)]
pub(crate) fn of_transformers(class: &str) -> Vec<String> {
    let text = include_str!("../tests/fixtures/config_keys.json");
    let mut keys: std::collections::BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
    keys.remove(class).unwrap()
}

/// Asserts that each key of a transformers class is a field of the configuration, a common key, or one of the family's
/// `own` keys.
#[cfg(test)]
pub(crate) fn assert_accounts_for<T: DeserializeOwned + serde::Serialize>(class: &str, own: &KnownKeys) {
    assert_accounts_for_as(class, own, |fields| {
        let config: T = serde_json::from_value(Value::Object(fields))?;
        Ok(crate::pretrained::fields_of(&config).unwrap())
    });
}

/// Asserts the same as [`assert_accounts_for`], for a configuration that a function reads and writes back.
#[cfg(test)]
pub(crate) fn assert_accounts_for_as(
    class: &str,
    own: &KnownKeys,
    read_and_written: impl Fn(Map<String, Value>) -> serde_json::Result<Map<String, Value>>,
) {
    // A field consumes its key. The remaining keys go to `other`, which is written back unchanged.
    let followed = |key: &str| {
        let mark = serde_json::json!({"mark": 1});
        match read_and_written(Map::from_iter([(key.to_owned(), mark.clone())])) {
            // The key is a field, since the mark is not a valid number, string or list.
            Err(_) => true,
            Ok(fields) => fields.get(key) != Some(&mark) || key.starts_with("rope_"),
        }
    };
    for key in of_transformers(class) {
        let known = crate::config_keys::COMMON.knows(&key) || own.knows(&key) || followed(&key);
        assert!(known, "{class}: nothing is said of {key}");
    }
}

/// Returns a value as errors quote it.
fn short(value: &Value) -> String {
    excerpt(&value.to_string(), 60)
}
