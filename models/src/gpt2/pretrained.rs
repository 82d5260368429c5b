use burn::tensor::DType;
use grove_backend::Backend;
use grove_weights::{Checkpoint, LoadOptions, Report, load};
use std::path::Path;

use super::{Gpt2, Gpt2Config, published_names};
use crate::{
    error::Result,
    pretrained::{config_beside, read_config, resolve, save_pretrained},
};

impl Gpt2Config {
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

impl<B: Backend> Gpt2<B> {
    /// Loads a published model: a directory, a weights file with its `config.json` beside it, or a hub id such as
    /// `openai-community/gpt2`, which is downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model from a directory or a weights file with its `config.json` beside it, with weights as `dtype` (f32
    /// if `None`), and reports which names matched.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let path = path.as_ref();
        let config = Gpt2Config::beside(path)?;
        let checkpoint = Checkpoint::open(path)?;
        let mut options = LoadOptions::new(device);
        options.dtype = dtype;
        Ok(load(Self::skeleton(&config)?, &checkpoint, &published_names(), &options)?)
    }

    /// Writes `config.json` and `model.safetensors` under the published names, so that transformers loads them.
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        save_pretrained(self, &self.config, &published_names(), directory.as_ref())
    }
}
