use grove_weights::TensorFiles;
use serde_json::{Map, Value};
use std::path::Path;

use super::{Naming, Pooling, VitConfig, dialect::check_architecture, infer::classes};
use crate::{
    error::{ModelError, Result},
    pretrained::{PretrainedConfig, config_beside, read_json},
    vision::fit_labels,
};

impl VitConfig {
    /// Returns the configuration of a checkpoint; see [`PretrainedConfig::of`].
    pub(super) fn of_checkpoint(path: &Path, checkpoint: &TensorFiles) -> Result<Self> {
        let file = config_beside(path);
        let fields: Option<Map<String, Value>> = if file.exists() { Some(read_json(&file)?) } else { None };
        let mut config = match fields {
            Some(fields) if is_of_transformers(&fields) => Self::checked(&file, || Self::from_json(fields))?,
            Some(fields) => {
                // Reports an unsupported architecture before looking for its tensors.
                check_architecture(&fields)
                    .map_err(|error| ModelError::Json { file: file.clone(), reason: error.to_string() })?;
                let inferred = Self::infer(checkpoint)?;
                Self::checked(&file, || inferred.with_timm(&fields)?.with_known_heads())?
            }
            None => Self::checked(path, || Self::infer(checkpoint)?.with_known_heads())?,
        };
        if let Some(naming) = Naming::of(checkpoint) {
            config.naming = naming;
        }
        config.labels = fit_labels(config.labels, classes(checkpoint, config.naming), &file)?;
        if config.labels.is_empty() && config.pooling == Pooling::ClassAndMean {
            config.pooling = Pooling::Class;
        }
        Ok(config)
    }

    fn checked(file: &Path, make: impl FnOnce() -> Result<Self>) -> Result<Self> {
        let made = make().and_then(|config| config.validate().map(|()| config));
        made.map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })
    }
}

/// Returns true if a `config.json` has transformers' fields, as opposed to timm's fields in transformers' wrapper.
fn is_of_transformers(fields: &Map<String, Value>) -> bool {
    fields.get("model_type").is_some_and(|kind| kind != "timm_wrapper")
}
