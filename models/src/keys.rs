//! The keys of a JSON file that holds settings. Nothing in such a file is ignored that changes a result: each key is followed,
//! or is known to change nothing, or is refused by its name. A key that none of the libraries reads that publish such files is of
//! no consequence.

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

/// The fields of a file, which remembers the keys that it was asked for.
pub(crate) struct Keys {
    file: PathBuf,
    fields: Map<String, Value>,
    asked: BTreeSet<&'static str>,
}

impl Keys {
    pub fn new(file: &Path, fields: Map<String, Value>) -> Self {
        Self { file: file.into(), fields, asked: BTreeSet::new() }
    }

    /// The keys that were asked for.
    #[cfg(test)]
    pub fn asked(&self) -> &BTreeSet<&'static str> {
        &self.asked
    }

    /// The value of a key; `None` if it is absent or null.
    pub fn get<T: DeserializeOwned>(&mut self, key: &'static str) -> Result<Option<T>> {
        self.asked.insert(key);
        let Some(value) = self.fields.get(key).filter(|value| !value.is_null()) else { return Ok(None) };
        match T::deserialize(value) {
            Ok(value) => Ok(Some(value)),
            Err(error) => Err(self.wrong(format!("`{key}` is {}: {error}", short(value)))),
        }
    }

    /// Refuses a key whose value is not one of those that change nothing. null is one of them.
    pub fn only(&mut self, key: &'static str, without_effect: &[Value]) -> Result<()> {
        self.asked.insert(key);
        only(&self.fields, key, without_effect).map_err(|reason| self.wrong(reason))
    }

    /// An error about the file.
    pub fn wrong(&self, reason: String) -> ModelError {
        ModelError::Json { file: self.file.clone(), reason: error_message(&reason) }
    }
}

/// As [`Keys::only`], with the reason as the error.
fn only(fields: &Map<String, Value>, key: &str, without_effect: &[Value]) -> std::result::Result<(), String> {
    let Some(value) = fields.get(key).filter(|value| !value.is_null()) else { return Ok(()) };
    let same = |other: &Value| other == value || other.as_f64().is_some_and(|number| value.as_f64() == Some(number));
    match without_effect.iter().any(same) {
        true => Ok(()),
        false => Err(format!(
            "`{key}` is {}, which is not supported: it would change the result. Remove the key to go without it",
            short(value)
        )),
    }
}

/// Checks the keys of a file.
///
/// # Errors
/// [`ModelError::Json`] with the file, the key, its value and the way out, for a key that is refused.
pub(crate) fn check_keys(known: &KnownKeys, file: &Path, fields: &Map<String, Value>) -> Result<()> {
    known.check(file, fields).map_err(|reason| ModelError::Json { file: file.into(), reason })
}

/// Keys of transformers' configurations that change no result, for every family.
#[cfg(test)]
const WITHOUT_EFFECT: [(&str, &str); 16] = [
    ("_name_or_path", "where the file came from"),
    ("architectures", "the class that wrote it"),
    ("transformers_version", "who wrote it"),
    ("model_type", "the family, by which the file is read"),
    ("dtype", "the type of the weights, which have their own"),
    ("torch_dtype", "the same, in transformers 4"),
    ("use_cache", "speed"),
    ("chunk_size_feed_forward", "memory"),
    ("return_dict", "the form of the result"),
    ("output_attentions", "the form of the result"),
    ("output_hidden_states", "the form of the result"),
    ("pad_token_id", "padding is masked"),
    ("id2label", "of classifiers"),
    ("label2id", "of classifiers"),
    ("problem_type", "of classifiers"),
    ("classifier_dropout", "of classifiers"),
];

/// Keys of transformers that say which features a model gives to a detector.
#[cfg(test)]
pub(crate) const BACKBONE: [&str; 3] = ["stage_names", "out_features", "out_indices"];

/// Keys that would change the results of a model, and the value, in JSON, that does not.
const REFUSED: [(&str, &str); 3] =
    [("is_encoder_decoder", "false"), ("add_cross_attention", "false"), ("quantization_config", "null")];

/// Refuses what a configuration says beyond its own fields, where that would change a result.
///
/// # Errors
/// [`ModelError::Config`] naming the key.
pub(crate) fn check_others(others: &Map<String, Value>) -> Result<()> {
    for (key, without_effect) in REFUSED {
        let without_effect = serde_json::from_str(without_effect).unwrap_or_default();
        only(others, key, &[without_effect]).map_err(|reason| ModelError::Config { reason })?;
    }
    Ok(())
}

/// The keys that a configuration class of transformers has. Fixture: tools/fixtures/config_keys.py.
#[cfg(test)]
pub(crate) fn of_transformers(class: &str) -> Vec<String> {
    let text = include_str!("../tests/fixtures/config_keys.json");
    let mut keys: std::collections::BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
    keys.remove(class).unwrap()
}

/// Asserts that each key of a class of transformers is a field of a configuration, or changes nothing (`own` are the family's, each
/// with its reason), or is refused.
#[cfg(test)]
pub(crate) fn assert_accounts_for<T: DeserializeOwned + serde::Serialize>(class: &str, own: &[(&str, &str)]) {
    assert_accounts_for_as(class, own, |fields| {
        let config: T = serde_json::from_value(Value::Object(fields))?;
        Ok(crate::pretrained::fields_of(&config).unwrap())
    });
}

/// As [`assert_accounts_for`], for a configuration that is read and written back by a function.
#[cfg(test)]
pub(crate) fn assert_accounts_for_as(
    class: &str,
    own: &[(&str, &str)],
    read_and_written: impl Fn(Map<String, Value>) -> serde_json::Result<Map<String, Value>>,
) {
    // A field takes its key from a file; what is left over goes to the others, which are written back as they are.
    let followed = |key: &str| {
        let mark = serde_json::json!({"mark": 1});
        match read_and_written(Map::from_iter([(key.to_owned(), mark.clone())])) {
            // No number, text or list.
            Err(_) => true,
            Ok(fields) => fields.get(key) != Some(&mark) || key.starts_with("rope_"),
        }
    };
    for key in of_transformers(class) {
        let known = [
            followed(&key),
            WITHOUT_EFFECT.iter().chain(own).any(|(other, _)| *other == key),
            REFUSED.iter().any(|(other, _)| *other == key),
        ];
        assert!(known.contains(&true), "{class}: nothing is said of {key}");
    }
}

/// A value as an error shows it.
fn short(value: &Value) -> String {
    excerpt(&value.to_string(), 60)
}
