use burn::tensor::DType;
use grove_backend::Backend;
use grove_weights::{Checkpoint, LoadOptions, Report, load};
use std::path::Path;

use super::{Llama, LlamaConfig, gguf, meta, published_names};
use crate::{
    error::{ModelError, Result},
    pretrained::{computing_in, config_beside, read_config, resolve, save_pretrained},
};

impl LlamaConfig {
    /// Reads and checks a `config.json`, given by its file or its directory.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        read_config(path.as_ref(), Self::validate)
    }

    /// Returns the configuration of a model: a GGUF file's metadata, else the `config.json`, or Meta's `params.json`,
    /// in the model's directory or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn of(model: impl AsRef<Path>, checkpoint: &Checkpoint) -> Result<Self> {
        let model = model.as_ref();
        if let Some(metadata) = checkpoint.gguf() {
            return gguf::read(metadata, checkpoint).map_err(|error| match error {
                ModelError::Config { reason } => ModelError::Json { file: model.into(), reason },
                other => other,
            });
        }
        let (file, params) = (config_beside(model), config_beside(model).with_file_name("params.json"));
        if !file.exists() && params.exists() { meta::read(&params, checkpoint) } else { Self::from_file(file) }
    }
}

impl<B: Backend> Llama<B> {
    /// Loads a published model: a directory, a weights file with its configuration beside it, a GGUF file, or a hub id
    /// such as `HuggingFaceTB/SmolLM2-135M-Instruct`, which is downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model from a directory or a file, and reports which names matched.
    ///
    /// Its weights are held as `dtype`, or as they are in the file where `None`: in 16 bits where they are, and in blocks
    /// where they are quantised, if the device multiplies such, else in 16 bits too. A CPU then computes in f32 all the
    /// same, and unpacks weights as it goes.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let path = path.as_ref();
        let checkpoint = Checkpoint::open(path)?;
        let config = LlamaConfig::of(path, &checkpoint)?;
        Self::from_checkpoint(&checkpoint, &config, device, dtype)
    }

    /// Loads a model of a known configuration from an open checkpoint; see [`from_path`](Self::from_path).
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path).
    pub fn from_checkpoint(
        checkpoint: &Checkpoint,
        config: &LlamaConfig,
        device: &B::Device,
        dtype: Option<DType>,
    ) -> Result<(Self, Report)> {
        let names = published_names(config);
        let skeleton = Self::skeleton_for(checkpoint, config, dtype)?;
        Ok(load(skeleton, checkpoint, &names, &LoadOptions::new(device))?)
    }

    /// The model without weights, each leaf of the type that [`from_path`](Self::from_path) would give it: used to
    /// compute the memory that it needs.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the configuration is invalid.
    pub fn skeleton_for(checkpoint: &Checkpoint, config: &LlamaConfig, dtype: Option<DType>) -> Result<Self> {
        let names = published_names(config);
        let skeleton = Self::skeleton(config)?;
        let skeleton = if dtype.is_none() { skeleton.quantised_as(checkpoint, &names) } else { skeleton };
        Ok(computing_in::<B, _>(skeleton, checkpoint, &names, dtype))
    }

    /// Writes `config.json` and `model.safetensors` under transformers' names.
    ///
    /// # Errors
    /// The model is quantised, or its rotary angles have their own factors, neither of which those files support; or
    /// the directory or a file cannot be written. Existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        if self.is_quantised() {
            let reason =
                "it is quantised, which a safetensors file cannot say; load it with a dtype (f16, say) and save that";
            return Err(ModelError::Config { reason: reason.into() });
        }
        if matches!(self.rope.scaling, grove_layers::RopeScaling::Factors(_)) {
            let reason = "its rotary angles are scaled by factors of its own, which a config.json cannot say";
            return Err(ModelError::Config { reason: reason.into() });
        }
        save_pretrained(self, &self.config, &published_names(&self.config), directory.as_ref())
    }
}
