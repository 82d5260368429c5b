use burn::tensor::{DType, TensorData};
use grove_backend::Backend;
use grove_weights::{Checkpoint, LoadOptions, Report, load};
use serde_json::{Map, Value};
use std::path::Path;

use super::{Naming, ResNet, ResNetConfig, infer::classes, names::norm_names, published_names};
use crate::{
    error::{ModelError, Result},
    pretrained::{config_beside, read_config, read_json, resolve, save_with_constants},
    vision::{check_timm, fit_labels, timm_labels},
};

/// timm's architectures that are computed as here, a name on each line. Made by tools/fixtures/timm_architectures.py.
const TIMM: &str = include_str!("timm.txt");

/// Arguments of theirs that show in the weights' shapes; averaging is the only pooling.
const TIMM_ARGUMENTS: [&str; 5] = ["layers", "channels", "cardinality", "base_width", "global_pool"];

impl ResNetConfig {
    /// Reads and checks transformers' `config.json`, given as such or by its directory.
    ///
    /// # Errors
    /// The file cannot be read, is no such JSON, or describes no possible network; each error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        read_config(path.as_ref(), Self::validate)
    }

    /// Returns the configuration of a checkpoint: transformers' `config.json` beside it, or, without one (torchvision,
    /// timm), the sizes inferred from the tensors' shapes. It has one label for each class of the head.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file) and [`infer`](Self::infer); [`ModelError::Classes`] where a file names more or
    /// fewer classes than the head has; timm's `config.json` names an architecture that is computed in another way, such as
    /// `resnetblur50`.
    pub fn of(path: impl AsRef<Path>, checkpoint: &Checkpoint) -> Result<Self> {
        let file = config_beside(path.as_ref());
        let fields: Option<Map<String, Value>> = if file.exists() { Some(read_json(&file)?) } else { None };
        let wrong = |reason: String| ModelError::Json { file: file.clone(), reason };
        let mut config = match fields {
            Some(fields) if fields.contains_key("hidden_sizes") => {
                serde_json::from_value(Value::Object(fields)).map_err(|error| wrong(error.to_string()))?
            }
            Some(fields) => {
                let inferred = Self::infer(checkpoint)?;
                check_timm(&fields, "ResNet", TIMM, &TIMM_ARGUMENTS).map_err(|error| wrong(error.to_string()))?;
                match fields.get("global_pool").and_then(Value::as_str) {
                    None | Some("avg" | "fast" | "") => {}
                    Some(other) => return Err(wrong(format!("global_pool is '{other}'; only avg is supported"))),
                }
                Self { labels: timm_labels(&fields), ..inferred }
            }
            None => Self::infer(checkpoint)?,
        };
        // A file of another library's names may describe what transformers has no field for.
        config.naming = Naming::of(checkpoint).unwrap_or(config.naming);
        config.validate().map_err(|error| wrong(error.to_string()))?;
        config.labels = fit_labels(config.labels, classes(checkpoint, config.naming), &file)?;
        Ok(config)
    }
}

impl<B: Backend> ResNet<B> {
    /// Loads a published network: a directory, a weights file, or a hub id such as `microsoft/resnet-50` or
    /// `timm/resnet50.a1_in1k`, which is downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a network of torchvision, timm or transformers from a directory or a weights file, with weights as `dtype`
    /// (f32 if `None`), and reports which names matched. See [`ResNetConfig::of`] for where its sizes come from.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let checkpoint = Checkpoint::open(&path)?;
        let config = ResNetConfig::of(&path, &checkpoint)?;
        let options = LoadOptions { dtype, ..LoadOptions::new(device) };
        Ok(load(Self::skeleton(&config)?, &checkpoint, &published_names(&config), &options)?)
    }

    /// Writes `config.json` and `model.safetensors` by the names of [`ResNetConfig::naming`], with the counters
    /// (`num_batches_tracked`) that PyTorch's normalisations have.
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        let mut config = self.config.clone();
        let class = if self.head.is_some() { "ResNetForImageClassification" } else { "ResNetModel" };
        config.other.insert("model_type".into(), "resnet".into());
        config.other.insert("architectures".into(), vec![class].into());
        let names = published_names(&self.config);
        // With a fixed momentum PyTorch's counters mean nothing; they are 0 as in a new network.
        let counter = |norm: String| (format!("{norm}.num_batches_tracked"), TensorData::new(vec![0_i64], [0; 0]));
        let counters = norm_names(self).into_iter().map(counter).collect();
        save_with_constants(self, &config, &names, directory.as_ref(), counters)
    }
}
