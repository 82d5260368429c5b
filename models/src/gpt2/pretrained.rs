use burn::tensor::DType;
use grove_backend::Backend;
use grove_weights::{Checkpoint, HubOptions, LoadOptions, Report, SaveOptions, Source, Wanted, load, save_model};
use std::path::Path;

use super::{Gpt2, Gpt2Config, published_names};
use crate::{
    error::Result,
    pretrained::{read_json, write_json},
};

impl Gpt2Config {
    /// Reads and checks a `config.json`, given as such or by its directory.
    ///
    /// # Errors
    /// The file cannot be read, is no such JSON, or describes no possible model; each error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let file = if path.is_dir() { path.join("config.json") } else { path.to_owned() };
        let config: Self = read_json(&file)?;
        config.validate().map_err(|error| crate::ModelError::Json { file, reason: error.to_string() })?;
        Ok(config)
    }

    /// The `config.json` that belongs to a model: in its directory, or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        let model = model.as_ref();
        Self::from_file(if model.is_dir() { model.join("config.json") } else { model.with_file_name("config.json") })
    }
}

impl<B: Backend> Gpt2<B> {
    /// Loads a published model: a directory, a weights file with its `config.json` beside it, or a hub id such as
    /// `openai-community/gpt2`, which is downloaded unless it lies in the cache.
    ///
    /// # Errors
    /// Each names the file, or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        let path = Source::parse(source)?.resolve(&HubOptions::from_env(), &Wanted::model())?;
        Ok(Self::from_path(path, device, None)?.0)
    }

    /// Loads a model from a directory or a weights file with its `config.json` beside it, its numbers as `dtype` (f32
    /// where `None`), and reports which names met.
    ///
    /// # Errors
    /// Each names the file, the tensor where one is at fault, and what to do.
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
    /// The directory or a file cannot be written; what lay there before stays.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        let directory = directory.as_ref();
        std::fs::create_dir_all(directory)
            .map_err(|source| crate::ModelError::Io { file: directory.into(), source })?;
        save_model(self, &published_names(), directory, &SaveOptions::default())?;
        write_json(&directory.join("config.json"), &self.config)
    }
}
