//! Keys of JSON settings files.
//!
//! Each key belongs to one of three sets, which are defined where the file is read: supported; known not to affect
//! results, with the reason; or rejected by name. The criterion is the class that the file names in the reference
//! library: a key that this class does not read cannot affect its results. People also add notes and keys of other
//! programs. Such an unknown key is accepted and named once on standard error, so that a key of a newer version is
//! noticed. `null` means that a key is absent.

use serde_json::{Map, Value};
use std::path::Path;

use crate::{notes::note_once, printable::excerpt};

/// Maximum number of characters of a value in a message.
const LONGEST_VALUE: usize = 100;

/// The keys of one kind of file.
pub struct KnownKeys {
    /// Supported keys.
    pub followed: &'static [&'static str],
    /// Keys that do not affect results, each with the reason.
    pub without_effect: &'static [(&'static str, &'static str)],
    /// Keys that affect results but are not supported.
    pub refused: &'static [RefusedKey],
}

/// A key that affects results but is not supported.
pub struct RefusedKey {
    /// The key.
    pub key: &'static str,
    /// Values without effect, in compact JSON: the reference's defaults.
    pub neutral: &'static [&'static str],
    /// The workaround.
    pub instead: &'static str,
}

impl KnownKeys {
    /// Checks the keys of a file. The note about unknown keys names `file`.
    ///
    /// # Errors
    /// As [`refuse`](Self::refuse).
    pub fn check(&self, file: &Path, fields: &Map<String, Value>) -> Result<(), String> {
        self.refuse(fields)?;
        let present = fields.iter().filter(|(_, value)| !value.is_null());
        let unknown: Vec<&str> = present.map(|(key, _)| key.as_str()).filter(|key| !self.knows(key)).collect();
        name_unknown_keys(file, &unknown);
        Ok(())
    }

    /// Checks the rejected keys alone.
    ///
    /// # Errors
    /// A sentence with the rejected key, its value and the workaround.
    pub fn refuse(&self, fields: &Map<String, Value>) -> Result<(), String> {
        for RefusedKey { key, neutral, instead } in self.refused {
            let Some(value) = fields.get(*key).filter(|value| !value.is_null()) else { continue };
            if !neutral.iter().any(|neutral| is_same(neutral, value)) {
                let value = excerpt(&value.to_string(), LONGEST_VALUE);
                return Err(format!("{key} is {value}, which is not supported; {instead}"));
            }
        }
        Ok(())
    }

    /// Returns true if a key is in one of the sets.
    pub fn knows(&self, key: &str) -> bool {
        self.all().any(|known| known == key)
    }

    /// Returns the keys of all three sets.
    pub fn all(&self) -> impl Iterator<Item = &'static str> {
        let quiet = self.without_effect.iter().map(|(key, _)| *key);
        self.followed.iter().copied().chain(quiet).chain(self.refused.iter().map(|refused| refused.key))
    }
}

/// Returns true if a value is the one in compact JSON. Numbers are equal in every notation: `1` is `1.0`.
fn is_same(json: &str, value: &Value) -> bool {
    serde_json::from_str::<Value>(json).is_ok_and(|other| other == *value)
        || value.is_number() && json.parse::<f64>().ok() == value.as_f64()
}

/// Names keys of a file that are not known, once, on standard error. No keys, no note.
pub fn name_unknown_keys(file: &Path, keys: &[&str]) {
    if !keys.is_empty() {
        let list = excerpt(&keys.join(", "), 3 * LONGEST_VALUE);
        note_once(&format!("{}: keys that are not known and change nothing here: {list}", file.display()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const KEYS: KnownKeys = KnownKeys {
        followed: &["size"],
        without_effect: &[("seed", "for training alone")],
        refused: &[RefusedKey { key: "scale", neutral: &["1.0", "\"none\""], instead: "divide the weights by it" }],
    };

    #[test]
    fn refuses_by_key_value_and_way_out() {
        let check = |fields: Value| KEYS.check(Path::new("a/b.json"), fields.as_object().unwrap());
        check(json!({"size": 3, "seed": 0, "scale": 1.0, "comment": "ours"})).unwrap();
        check(json!({"scale": null})).unwrap();
        check(json!({"scale": "none"})).unwrap();
        check(json!({"scale": 1})).unwrap();
        let error = check(json!({"size": 3, "scale": 2.5})).unwrap_err();
        assert_eq!(error, "scale is 2.5, which is not supported; divide the weights by it");
        assert!(KEYS.all().eq(["size", "seed", "scale"]));
    }
}
