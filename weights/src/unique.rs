//! JSON objects without duplicate keys.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Entries of a JSON object in the order of the text. A duplicate key is an error: `serde`'s maps would silently keep
/// the last value, and a file that describes one tensor twice is not trustworthy.
#[derive(Debug)]
pub(crate) struct Unique<V>(pub(crate) Vec<(String, V)>);

impl<'de, V: Deserialize<'de>> Deserialize<'de> for Unique<V> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(UniqueVisitor(PhantomData))
    }
}

struct UniqueVisitor<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for UniqueVisitor<V> {
    type Value = Unique<V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = std::collections::HashSet::new();
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("the name `{key}` appears twice")));
            }
            entries.push((key, map.next_value()?));
        }
        Ok(Unique(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::Unique;

    #[test]
    fn keeps_order_and_refuses_repetition() {
        let unique: Unique<u8> = serde_json::from_str(r#"{"b": 1, "a": 2}"#).expect("distinct");
        assert_eq!(unique.0, [("b".to_string(), 1), ("a".to_string(), 2)]);
        let error = serde_json::from_str::<Unique<u8>>(r#"{"a": 1, "b": 2, "a": 3}"#).expect_err("twice");
        assert!(error.to_string().contains("`a` appears twice"), "{error}");
    }
}
