use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::Tree;
use grove_weights::{Checkpoint, LoadOptions, NameMap, Report, load};
use std::path::Path;

use super::{RnnClassifier, RnnClassifierConfig, RnnLm, RnnLmConfig, classifier_names, published_names};
use crate::{
    error::Result,
    pretrained::{config_beside, read_config, resolve, save_pretrained},
};

impl RnnLmConfig {
    /// Reads and checks a `config.json`, given by its file or its directory.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        read_config(path.as_ref(), Self::validate)
    }

    /// The `config.json` that belongs to a model: in its directory, or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        Self::from_file(config_beside(model.as_ref()))
    }
}

impl RnnClassifierConfig {
    /// Reads and checks a `config.json`, given by its file or its directory.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        read_config(path.as_ref(), Self::validate)
    }

    /// The `config.json` that belongs to a model: in its directory, or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        Self::from_file(config_beside(model.as_ref()))
    }
}

impl<B: Backend> RnnLm<B> {
    /// Loads a model: a directory, a weights file with its `config.json` beside it, or a hub id, which is downloaded
    /// unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model from a directory or a weights file (safetensors or what `torch.save` wrote of a `state_dict`) with
    /// its `config.json` beside it, with weights as `dtype` (f32 if `None`), and reports which names matched.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let config = RnnLmConfig::beside(&path)?;
        read_weights(Self::skeleton(&config)?, path.as_ref(), &published_names(&config), device, dtype)
    }

    /// Writes `config.json` and `model.safetensors` under PyTorch's names.
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        save_pretrained(self, &self.config, &published_names(&self.config), directory.as_ref())
    }
}

impl<B: Backend> RnnClassifier<B> {
    /// Loads a model: a directory, a weights file with its `config.json` beside it, or a hub id, which is downloaded
    /// unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model from a directory or a weights file (safetensors or what `torch.save` wrote of a `state_dict`) with
    /// its `config.json` beside it, with weights as `dtype` (f32 if `None`), and reports which names matched.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let config = RnnClassifierConfig::beside(&path)?;
        read_weights(Self::skeleton(&config)?, path.as_ref(), &classifier_names(), device, dtype)
    }

    /// Writes `config.json` and `model.safetensors` under PyTorch's names.
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        save_pretrained(self, &self.config, &classifier_names(), directory.as_ref())
    }
}

fn read_weights<B: Backend, M: Tree<B>>(
    skeleton: M,
    path: &Path,
    names: &NameMap,
    device: &B::Device,
    dtype: Option<DType>,
) -> Result<(M, Report)> {
    let mut options = LoadOptions::new(device);
    options.dtype = dtype;
    Ok(load(skeleton, &Checkpoint::open(path)?, names, &options)?)
}
