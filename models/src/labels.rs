//! Class names in transformers' format: `"id2label": {"0": "negative", "1": "positive"}`. A plain list is accepted too.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::Linear;
use grove_tree::Array;
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use serde_json::{Map, Number, Value};
use std::collections::{BTreeMap, HashMap};

use crate::error::{Result, invalid};

/// Returns a classifier's output layer for new labels. The weights of a label that `old` has too come from `old`, the
/// others from `new`.
pub(crate) fn keep_classes<B: Backend>(
    old: &Linear<B>,
    new: Linear<B>,
    old_labels: &[String],
    new_labels: &[String],
) -> Linear<B> {
    let positions: HashMap<&String, usize> = old_labels.iter().enumerate().map(|(i, label)| (label, i)).collect();
    let place = |(i, label)| positions.get(label).copied().unwrap_or(old_labels.len() + i) as i64;
    let positions: Vec<i64> = new_labels.iter().enumerate().map(place).collect();
    let (count, device) = (positions.len(), old.weight.val().device());
    let positions = Tensor::<B, 1, Int>::from_data(TensorData::new(positions, [count]), &device);
    let dtype = old.weight.dtype();
    let weight = Tensor::cat(vec![old.weight.val(), new.weight.val().cast(dtype)], 1).select(1, positions.clone());
    let bias = old.bias.as_ref().zip(new.bias).map(|(old, new)| {
        let dtype = old.dtype();
        Array::new(Tensor::cat(vec![old.val(), new.val().cast(dtype)], 0).select(0, positions))
    });
    Linear::from_arrays(Array::new(weight), bias)
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a list of labels, or an object such as {\"0\": \"negative\", \"1\": \"positive\"}")]
enum Labels {
    List(Vec<Name>),
    Numbered(BTreeMap<String, Name>),
}

/// A label. Numbers and booleans are accepted as labels.
#[derive(Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(Number),
    Flag(bool),
}

impl Name {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
            // Python's spelling.
            Self::Flag(flag) => if flag { "True" } else { "False" }.into(),
        }
    }
}

/// Returns the class names in the fields of a `config.json`: `id2label`, or transformers' names if `num_labels` is another
/// number of classes. By default there are two.
///
/// # Errors
/// [`ModelError::Config`](crate::ModelError::Config) if `id2label` has another form.
pub(crate) fn of_fields(fields: &Map<String, Value>) -> Result<Vec<String>> {
    match (unnamed(fields), fields.get("id2label").filter(|labels| !labels.is_null())) {
        (None, Some(labels)) => deserialize(labels).or_else(|error: serde_json::Error| invalid(error.to_string())),
        (count, _) => Ok(numbered(count.unwrap_or(2))),
    }
}

/// Returns the number of classes if `num_labels` differs from the number of names in `id2label`. transformers then ignores
/// the names.
pub(crate) fn unnamed(fields: &Map<String, Value>) -> Option<u64> {
    let named = match fields.get("id2label") {
        Some(Value::Object(names)) => Some(names.len() as u64),
        Some(Value::Array(names)) => Some(names.len() as u64),
        _ => None,
    };
    fields.get("num_labels").and_then(Value::as_u64).filter(|count| named != Some(*count))
}

/// Returns transformers' names of classes without names.
pub(crate) fn numbered(count: u64) -> Vec<String> {
    (0..count.min(1 << 20)).map(|i| format!("LABEL_{i}")).collect()
}

/// Returns the `label2id` of a `config.json`: the index of each class.
pub(crate) fn indices(labels: &[String]) -> Value {
    labels.iter().enumerate().map(|(i, label)| (label.clone(), Value::from(i))).collect()
}

pub(crate) fn serialize<S: Serializer>(labels: &[String], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.collect_map(labels.iter().enumerate().map(|(i, label)| (i.to_string(), label)))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    let mut numbered = match Labels::deserialize(deserializer)? {
        Labels::List(labels) => return Ok(labels.into_iter().map(Name::text).collect()),
        Labels::Numbered(numbered) => numbered,
    };
    let count = numbered.len();
    let lacking = |i: usize| D::Error::custom(format!("id2label has {count} entries and none for class {i}"));
    (0..count).map(|i| numbered.remove(&i.to_string()).map(Name::text).ok_or_else(|| lacking(i))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    #[test]
    fn labels_are_texts_numbers_or_flags() {
        let read = |value: Value| super::deserialize(value).map_err(|error| error.to_string());
        assert_eq!(read(json!({"1": "b", "0": "a"})).unwrap(), ["a", "b"]);
        assert_eq!(read(json!({"0": 0, "1": 4.5, "2": true})).unwrap(), ["0", "4.5", "True"]);
        assert_eq!(read(json!(["a", 7])).unwrap(), ["a", "7"]);
        assert!(read(json!({"0": "a", "2": "b"})).unwrap_err().contains("none for class 1"));
        assert!(read(json!({"0": ["a"]})).is_err());
    }
}
