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

use crate::{
    error::{ModelError, Result},
    sequence_classification::check_fields,
};

/// Fields of a JSON file that are read one by one, with a record of their keys. Errors name the file and the key.
///
/// ```
/// use grove_models::JsonFields;
/// let fields = [("top_k".to_owned(), 50.into()), ("num_beams".to_owned(), 4.into())].into_iter().collect();
/// let mut fields = JsonFields::new("generation_config.json".as_ref(), fields);
/// assert_eq!(fields.get::<usize>("top_k")?, Some(50));
/// let error = fields.only("num_beams", &[1.into()]).unwrap_err().to_string();
/// assert!(error.starts_with("generation_config.json: `num_beams` is 4"));
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

    /// Refuses a key unless it is absent, null, or one of the values without effect.
    ///
    /// # Errors
    /// [`ModelError::Json`] for another value.
    pub fn only(&mut self, key: &'static str, without_effect: &[Value]) -> Result<()> {
        self.asked.insert(key);
        only(&self.fields, key, without_effect).map_err(|reason| self.wrong(reason))
    }

    /// Returns an error about the file.
    pub fn wrong(&self, reason: String) -> ModelError {
        ModelError::Json { file: self.file.clone(), reason: error_message(&reason) }
    }
}

/// Checks a key as [`JsonFields::only`] does; the error is the reason.
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
/// [`ModelError::Json`] for a refused key, with the file, the key, its value and the remedy.
pub(crate) fn check_keys(known: &KnownKeys, file: &Path, fields: &Map<String, Value>) -> Result<()> {
    known.check(file, fields).map_err(|reason| ModelError::Json { file: file.into(), reason })
}

/// Keys of transformers' configurations that change no result in any family.
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

/// Keys of transformers that select the features that a backbone returns to a detector.
#[cfg(test)]
pub(crate) const BACKBONE: [&str; 3] = ["stage_names", "out_features", "out_indices"];

/// Keys that would change a model's results, each with its neutral value in JSON.
const REFUSED: [(&str, &str); 3] =
    [("is_encoder_decoder", "false"), ("add_cross_attention", "false"), ("quantization_config", "null")];

/// Refuses additional fields of a configuration that would change a result, and impossible fields of a classifier.
///
/// # Errors
/// [`ModelError::Config`] naming the key.
pub(crate) fn check_others(others: &Map<String, Value>) -> Result<()> {
    for (key, without_effect) in REFUSED {
        let without_effect = serde_json::from_str(without_effect).unwrap_or_default();
        only(others, key, &[without_effect]).map_err(|reason| ModelError::Config { reason })?;
    }
    check_fields(others)
}

/// Returns the keys of a configuration class of transformers. Fixture: tools/fixtures/config_keys.py.
#[cfg(test)]
pub(crate) fn of_transformers(class: &str) -> Vec<String> {
    let text = include_str!("../tests/fixtures/config_keys.json");
    let mut keys: std::collections::BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
    keys.remove(class).unwrap()
}

/// Asserts that each key of a transformers class is a field of the configuration, has no effect (`own` lists the
/// family's keys without effect, each with its reason), or is refused.
#[cfg(test)]
pub(crate) fn assert_accounts_for<T: DeserializeOwned + serde::Serialize>(class: &str, own: &[(&str, &str)]) {
    assert_accounts_for_as(class, own, |fields| {
        let config: T = serde_json::from_value(Value::Object(fields))?;
        Ok(crate::pretrained::fields_of(&config).unwrap())
    });
}

/// Asserts the same as [`assert_accounts_for`], for a configuration that a function reads and writes back.
#[cfg(test)]
pub(crate) fn assert_accounts_for_as(
    class: &str,
    own: &[(&str, &str)],
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
        let known = [
            followed(&key),
            WITHOUT_EFFECT.iter().chain(own).any(|(other, _)| *other == key),
            REFUSED.iter().any(|(other, _)| *other == key),
        ];
        assert!(known.contains(&true), "{class}: nothing is said of {key}");
    }
}

/// Returns a value as errors quote it.
fn short(value: &Value) -> String {
    excerpt(&value.to_string(), 60)
}
