use burn::tensor::DType;
use grove_backend::Backend;
use grove_weights::{Checkpoint, LoadOptions, Report, load};
use serde_json::{Map, Value};
use std::path::Path;

use super::{Naming, Pooling, Vit, VitConfig, infer::classes, published_names};
use crate::{
    error::{ModelError, Result},
    pretrained::{config_beside, config_file, read_json, resolve, save_pretrained},
    vision::fit_labels,
};

impl VitConfig {
    /// Reads and checks transformers' `config.json` of a ViT or a DINOv2, given by its file or its directory.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let file = config_file(path.as_ref());
        let fields: Map<String, Value> = read_json(&file)?;
        Self::checked(&file, || Self::from_json(fields))
    }

    /// Returns the configuration of a checkpoint: transformers' `config.json` beside it, else the sizes inferred from
    /// the tensors' shapes and timm's `config.json` if there is one. It has one label for each class of the head.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file) and [`infer`](Self::infer); [`ModelError::Classes`] where a file names more or
    /// fewer classes than the head has; timm's `config.json` names an architecture that is computed in another way; nothing
    /// tells how many attention heads there are.
    pub fn of(path: impl AsRef<Path>, checkpoint: &Checkpoint) -> Result<Self> {
        let file = config_beside(path.as_ref());
        let fields: Option<Map<String, Value>> = if file.exists() { Some(read_json(&file)?) } else { None };
        let mut config = match fields {
            Some(fields) if is_of_transformers(&fields) => Self::checked(&file, || Self::from_json(fields))?,
            Some(fields) => {
                let inferred = Self::infer(checkpoint)?;
                Self::checked(&file, || inferred.with_timm(&fields)?.with_known_heads())?
            }
            None => Self::checked(path.as_ref(), || Self::infer(checkpoint)?.with_known_heads())?,
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

/// Returns true if a `config.json` has transformers' fields, and not timm's inside transformers' wrapper.
fn is_of_transformers(fields: &Map<String, Value>) -> bool {
    fields.get("model_type").is_some_and(|kind| kind != "timm_wrapper")
}

impl<B: Backend> Vit<B> {
    /// Loads a published model: a directory, a weights file, or a hub id such as `google/vit-base-patch16-224`,
    /// `facebook/dinov2-small` or `timm/vit_small_patch16_224.augreg_in1k`, which is downloaded unless it is in the
    /// cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model of transformers, timm or torchvision from a directory or a weights file, with weights as `dtype`
    /// (f32 if `None`), and reports which names matched. See [`VitConfig::of`] for where its sizes come from.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let checkpoint = Checkpoint::open(&path)?;
        let config = VitConfig::of(&path, &checkpoint)?;
        let options = LoadOptions { dtype, ..LoadOptions::new(device) };
        Ok(load(Self::skeleton(&config)?, &checkpoint, &published_names(&config), &options)?)
    }

    /// Writes `config.json` and `model.safetensors` by the names of [`VitConfig::naming`].
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        let names = published_names(&self.config);
        save_pretrained(self, &self.config.to_json()?, &names, directory.as_ref())
    }
}
