//! Number and names of the classes in published checkpoints.

use grove_weights::TensorFiles;
use serde_json::{Map, Value};
use std::path::Path;

use crate::error::{ModelError, Result};

/// Returns the names of ImageNet's 1000 classes, on which most published classifiers are trained.
pub fn imagenet_labels() -> Vec<String> {
    include_str!("imagenet.txt").lines().map(str::to_owned).collect()
}

/// Returns the name of a tensor in a checkpoint, with the first prefix that exists.
pub(crate) fn find_name(checkpoint: &TensorFiles, prefixes: &[&str], name: &str) -> Option<String> {
    prefixes.iter().map(|prefix| format!("{prefix}{name}")).find(|name| checkpoint.contains(name))
}

/// Returns the number of rows of a head's weight, `[classes, channels]`, if there is a head.
pub(crate) fn head_rows(checkpoint: &TensorFiles, prefixes: &[&str], name: &str) -> Option<usize> {
    let name = find_name(checkpoint, prefixes, name)?;
    checkpoint.info(&name).ok()?.shape.first().copied()
}

/// Returns the class names in timm's `config.json`; empty if it has none.
pub(crate) fn timm_labels(fields: &Map<String, Value>) -> Vec<String> {
    let cfg = fields.get("pretrained_cfg").and_then(Value::as_object);
    let of = |fields: &Map<String, Value>| -> Option<Vec<String>> {
        fields.get("label_names")?.as_array()?.iter().map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    of(fields).or_else(|| of(cfg?)).unwrap_or_default()
}

/// Returns one name for each class of a head: the configuration's, ImageNet's for 1000 unnamed classes, else `LABEL_0`
/// and so on, as in transformers.
pub(crate) fn fit_labels(labels: Vec<String>, classes: Option<usize>, file: &Path) -> Result<Vec<String>> {
    match classes {
        None => Ok(Vec::new()),
        Some(classes) if labels.len() == classes => Ok(labels),
        Some(1000) if labels.is_empty() => Ok(imagenet_labels()),
        Some(classes) if labels.is_empty() => Ok((0..classes).map(|i| format!("LABEL_{i}")).collect()),
        Some(classes) => Err(ModelError::Classes { file: file.into(), named: labels.len(), classes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_classes() {
        let labels = imagenet_labels();
        assert_eq!((labels.len(), &*labels[0], &*labels[999]), (1000, "tench", "toilet tissue"));
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let fit = |labels, classes| fit_labels(labels, classes, Path::new("m/config.json"));
        assert_eq!(fit(names(&["a"]), None).unwrap(), names(&[]));
        assert_eq!(fit(names(&["a", "b"]), Some(2)).unwrap(), names(&["a", "b"]));
        assert_eq!(fit(names(&[]), Some(2)).unwrap(), names(&["LABEL_0", "LABEL_1"]));
        let message = fit(names(&["a"]), Some(2)).unwrap_err().to_string();
        assert!(
            message.contains("m/config.json") && message.contains("1 classes") && message.contains("have 2;"),
            "{message}"
        );
    }
}
