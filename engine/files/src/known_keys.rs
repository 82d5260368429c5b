//! Keys of JSON settings files.
//!
//! Each key belongs to one of three sets, which are defined where the file is read: supported; known not to affect
//! results, with the reason; or rejected by name. The criterion is the class that the file names in the reference
//! library: a key that this class does not read cannot affect its results. People also add notes and keys of other
//! programs. Such an unknown key is accepted and named once on standard error, so that a key of a newer version is
//! noticed. `null` means that a key is absent.

use serde_json::{Map, Value};
use std::path::Path;

use crate::{notes::say_once, printable::excerpt};

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
    /// A sentence with the rejected key, its value and the workaround.
    pub fn check(&self, file: &Path, fields: &Map<String, Value>) -> Result<(), String> {
        let mut unknown = vec![];
        for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
            let key = key.as_str();
            if self.followed.contains(&key) || self.without_effect.iter().any(|(known, _)| *known == key) {
                continue;
            }
            let Some(refused) = self.refused.iter().find(|refused| refused.key == key) else {
                unknown.push(key);
                continue;
            };
            let value = value.to_string();
            if !refused.neutral.contains(&&*value) {
                let (value, instead) = (excerpt(&value, LONGEST_VALUE), refused.instead);
                return Err(format!("{key} is {value}, which is not supported; {instead}"));
            }
        }
        if !unknown.is_empty() {
            let list = excerpt(&unknown.join(", "), 3 * LONGEST_VALUE);
            say_once(&format!("{}: keys that are not known and change nothing here: {list}", file.display()));
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
        let error = check(json!({"size": 3, "scale": 2.5})).unwrap_err();
        assert_eq!(error, "scale is 2.5, which is not supported; divide the weights by it");
        assert!(KEYS.all().eq(["size", "seed", "scale"]));
    }
}
