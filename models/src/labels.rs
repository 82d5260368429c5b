//! Class names as transformers writes them: `"id2label": {"0": "negative", "1": "positive"}`. A plain list is read too.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of labels, or an object such as {\"0\": \"negative\", \"1\": \"positive\"}")]
enum Labels {
    List(Vec<String>),
    Numbered(BTreeMap<String, String>),
}

pub(crate) fn serialize<S: Serializer>(labels: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().enumerate().map(|(i, label)| (i.to_string(), label)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let mut numbered = match Labels::deserialize(deserializer)? {
        Labels::List(labels) => return Ok(labels),
        Labels::Numbered(numbered) => numbered,
    };
    let count = numbered.len();
    let lacking = |i: usize| D::Error::custom(format!("id2label has {count} entries and none for class {i}"));
    (0..count).map(|i| numbered.remove(&i.to_string()).ok_or_else(|| lacking(i))).collect()
}
