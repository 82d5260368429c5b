use grove_files::{FileError, read_json};
use grove_weights::TensorFiles;
use serde_json::{Map, Value};
use std::path::Path;

use super::{Naming, ResNetConfig, infer::classes};
use crate::{
    error::{ModelError, Result},
    pretrained::{checked, config_beside},
    vision::{check_timm, fit_labels, name_unknown_timm_keys, timm_labels},
};

/// timm architectures that this model computes exactly, one per line. Made by tools/fixtures/timm_architectures.py.
const TIMM: &str = include_str!("timm.txt");

/// Arguments of timm's architectures that the weights' shapes determine. The only supported pooling is the average.
const TIMM_ARGUMENTS: [&str; 5] = ["layers", "channels", "cardinality", "base_width", "global_pool"];

impl ResNetConfig {
    /// Returns the configuration of a checkpoint; see [`PretrainedConfig::of`](crate::PretrainedConfig::of).
    pub(super) fn of_checkpoint(path: &Path, checkpoint: &TensorFiles) -> Result<Self> {
        let file = config_beside(path);
        let fields: Option<Map<String, Value>> = if file.exists() { Some(read_json(&file)?) } else { None };
        let file_error = |reason: String| ModelError::from(FileError::json(&file, reason));
        let mut config = match fields {
            Some(fields) if fields.contains_key("hidden_sizes") => {
                serde_json::from_value(Value::Object(fields)).map_err(|error| file_error(error.to_string()))?
            }
            Some(fields) => {
                // Reports an unsupported architecture before looking for its tensors.
                check_timm(&fields, "ResNet", TIMM, &TIMM_ARGUMENTS).map_err(|error| file_error(error.to_string()))?;
                let inferred = Self::infer(checkpoint)?;
                name_unknown_timm_keys(&fields, &file);
                match fields.get("global_pool").and_then(Value::as_str) {
                    None | Some("avg" | "fast" | "") => {}
                    Some(other) => return Err(file_error(format!("global_pool is '{other}'; only avg is supported"))),
                }
                Self { labels: timm_labels(&fields), ..inferred }
            }
            None => Self::infer(checkpoint)?,
        };
        // A checkpoint with another library's names can have options for which transformers has no field.
        config.naming = Naming::of(checkpoint).unwrap_or(config.naming);
        let mut config = checked(config, &file)?;
        config.labels = fit_labels(config.labels, classes(checkpoint, config.naming), &file)?;
        Ok(config)
    }
}
