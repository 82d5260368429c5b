//! Class names as transformers writes them: `"id2label": {"0": "negative", "1": "positive"}`. A plain list is read too.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::Linear;
use grove_tree::Array;
use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::collections::{BTreeMap, HashMap};

/// The last layer of a classifier for other labels: that of `old` where it has a label of the same name, else that of `new`.
pub(crate) fn keep_classes<B: Backend>(
    old: &Linear<B>,
    new: Linear<B>,
    old_labels: &[String],
    new_labels: &[String],
) -> Linear<B> {
    let places: HashMap<&String, usize> = old_labels.iter().enumerate().map(|(i, label)| (label, i)).collect();
    let place = |(i, label)| places.get(label).copied().unwrap_or(old_labels.len() + i) as i64;
    let places: Vec<i64> = new_labels.iter().enumerate().map(place).collect();
    let (count, device) = (places.len(), old.weight.val().device());
    let places = Tensor::<B, 1, Int>::from_data(TensorData::new(places, [count]), &device);
    let dtype = old.weight.dtype();
    let weight = Tensor::cat(vec![old.weight.val(), new.weight.val().cast(dtype)], 1).select(1, places.clone());
    let bias = old.bias.as_ref().zip(new.bias).map(|(old, new)| {
        let dtype = old.dtype();
        Array::new(Tensor::cat(vec![old.val(), new.val().cast(dtype)], 0).select(0, places))
    });
    Linear::new(Array::new(weight), bias)
}

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
