//! Tests that each key of a configuration class is accounted for.

use grove_files::KnownKeys;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Returns the keys of a configuration class of transformers. Fixture: tools/fixtures/config_keys.py.
pub(crate) fn of_transformers(class: &str) -> Vec<String> {
    let text = include_str!("../tests/fixtures/config_keys.json");
    let mut keys: BTreeMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
    keys.remove(class).unwrap()
}

/// Asserts that each key of a transformers class is a field of the configuration, a common key, or one of the family's
/// `own` keys.
pub(crate) fn assert_accounts_for<T: DeserializeOwned + Serialize>(class: &str, own: &KnownKeys) {
    assert_accounts_for_as(class, own, |fields| {
        let config: T = serde_json::from_value(Value::Object(fields))?;
        Ok(crate::pretrained::fields_of(&config).unwrap())
    });
}

/// Asserts the same as [`assert_accounts_for`], for a configuration that a function reads and writes back.
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
