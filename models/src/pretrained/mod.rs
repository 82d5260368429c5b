//! Loading and saving of models as they are published: a `config.json`, and weights under published names.

mod dtype;
pub(crate) mod json;
mod save;
mod with_adapter;

use burn::tensor::{DType, TensorData};
use grove_backend::Backend;
use grove_transform::eval_shape;
use grove_tree::{Init, Key, Tree, cast};
use grove_weights::{LoadOptions, NameMap, Report, SaveOptions, TensorFiles, WeightsError, load};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::Path};

use crate::{
    error::{ModelError, Result},
    model_files::{ModelFiles, resolve},
};

pub(crate) use dtype::computing_in;
pub use json::read_json;
pub(crate) use json::{config_beside, read_fields, rename, write_json, write_text};
pub(crate) use with_adapter::adapted;

/// Sizes and options of a model: the fields of its `config.json`.
///
/// Nothing is required but serde's traits. [`read`](Self::read) and [`of`](Self::of) are for models whose files differ from
/// the struct, or that are published without a `config.json`.
pub trait PretrainedConfig: Clone + Serialize + DeserializeOwned {
    /// Checks that the configuration describes a possible model.
    ///
    /// # Errors
    /// [`ModelError::Config`] naming the field.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// The configuration of a published size.
    ///
    /// # Errors
    /// [`ModelError::UnknownPreset`], with the known names, for any other name.
    fn preset(name: &str) -> Result<Self> {
        Err(ModelError::UnknownPreset { name: name.into(), known: "none".into() })
    }

    /// Reads a `config.json` without checking its values. Use [`from_file`](Self::from_file).
    ///
    /// # Errors
    /// [`ModelError::Io`] or [`ModelError::Json`], which name the file.
    fn read(file: &Path) -> Result<Self> {
        read_json(file)
    }

    /// The configuration of a model whose weights are open: its `config.json`, or what else its files tell.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    fn of(model: impl AsRef<Path>, _checkpoint: &TensorFiles) -> Result<Self> {
        Self::beside(model)
    }

    /// Reads and checks a `config.json`, given by its file or its directory.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let file = json::config_file(path.as_ref());
        let config = Self::read(&file)?;
        config.validate().map_err(|error| ModelError::Json { file, reason: error.to_string() })?;
        Ok(config)
    }

    /// The `config.json` that belongs to a model: in its directory, or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    fn beside(model: impl AsRef<Path>) -> Result<Self> {
        Self::from_file(config_beside(ModelFiles::at(model.as_ref())?.path()))
    }
}

/// A model that is loaded and saved with its configuration, as transformers' `PreTrainedModel`.
///
/// A model states its configuration, its constructor and the names of its tensors in files; everything else is provided.
///
/// ```
/// use grove_backend::Backend;
/// use grove_layers::Linear;
/// use grove_models::{Pretrained, PretrainedConfig, Result};
/// use grove_tree::{Init, Key, Tree, eq};
/// use grove_weights::{NameMap, Step};
/// use serde::{Deserialize, Serialize};
/// # type Flex = burn_flex::Flex;
///
/// #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
/// struct ProbeConfig {
///     width: usize,
///     classes: usize,
/// }
///
/// impl PretrainedConfig for ProbeConfig {}
///
/// #[derive(Tree, Clone, Debug)]
/// struct Probe<B: Backend> {
///     linear: Linear<B>,
///     #[tree(static)]
///     config: ProbeConfig,
/// }
///
/// impl<B: Backend> Pretrained<B> for Probe<B> {
///     type Config = ProbeConfig;
///
///     fn new(config: &ProbeConfig, init: &Init<B>) -> Result<Self> {
///         let linear = Linear::normal(config.width, config.classes, 0.02, &init.named("linear"));
///         Ok(Self { linear, config: config.clone() })
///     }
///
///     fn config(&self) -> &ProbeConfig {
///         &self.config
///     }
///
///     fn published_names(_: &ProbeConfig) -> NameMap {
///         NameMap::new().rule("fc.weight", "linear.weight").then(Step::Transpose).rule("fc.bias", "linear.bias")
///     }
/// }
///
/// # let (device, directory) = (Default::default(), tempfile::tempdir()?);
/// let probe = Probe::<Flex>::init(&ProbeConfig { width: 4, classes: 2 }, Key::new(0), &device)?;
/// probe.save_pretrained(&directory)?;
/// let (loaded, report) = Probe::<Flex>::from_path(&directory, &device, None)?;
/// assert!(eq(&loaded, &probe) && report.is_complete());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Pretrained<B: Backend>: Tree<B> {
    /// Sizes and options.
    type Config: PretrainedConfig;

    /// A model with initial weights, or without weights, as `init` says.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the configuration is invalid.
    fn new(config: &Self::Config, init: &Init<B>) -> Result<Self>;

    /// The model's configuration.
    fn config(&self) -> &Self::Config;

    /// The names that published files have for the model's leaves.
    fn published_names(config: &Self::Config) -> NameMap;

    /// The content of the `config.json` that [`save_pretrained`](Self::save_pretrained) writes.
    ///
    /// # Errors
    /// The model is one that published files cannot describe.
    fn published_config(&self) -> Result<Map<String, Value>> {
        fields_of(self.config())
    }

    /// Tensors that other libraries expect in a file and that no leaf holds, by their published names.
    fn published_constants(&self) -> BTreeMap<String, TensorData> {
        BTreeMap::new()
    }

    /// The model without weights, each leaf of the type that [`from_path`](Self::from_path) gives it: all as `dtype`, f32 if
    /// `None`. Use it to compute the memory that a model needs.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn skeleton_for(checkpoint: &TensorFiles, config: &Self::Config, dtype: Option<DType>) -> Result<Self> {
        let _ = checkpoint;
        Ok(cast(Self::skeleton(config)?, dtype.unwrap_or(DType::F32).into()))
    }

    /// A model with initial weights; see [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn init(config: &Self::Config, key: Key, device: &B::Device) -> Result<Self> {
        Self::new(config, &Init::new(key, device))
    }

    /// The model without weights: for counting, printing and loading.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn skeleton(config: &Self::Config) -> Result<Self> {
        eval_shape(|init| Self::new(config, init))
    }

    /// The model without weights that [`from_path`](Self::from_path) would load, each leaf of the type that it would get. Only
    /// the headers of the weights are read; of a directory without weights the `config.json` is enough.
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path).
    fn skeleton_at(path: impl AsRef<Path>, dtype: Option<DType>) -> Result<Self> {
        let files = ModelFiles::at(path.as_ref())?;
        let path = files.path();
        match files.weights() {
            Ok(files) => Self::skeleton_for(&files, &Self::Config::of(path, &files)?, dtype),
            Err(ModelError::Weights(WeightsError::NothingFound { .. })) if path.join("config.json").exists() => {
                Self::skeleton(&Self::Config::from_file(path)?)
            }
            Err(error) => Err(error),
        }
    }

    /// Loads a published model: a directory, a weights file, or a hub id such as `openai-community/gpt2`, which is
    /// downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model from a directory or a weights file, with its configuration beside it, and reports which names matched.
    /// [`skeleton_for`](Self::skeleton_for) says in which types its weights are held. Of the directory of an adapter of peft, it
    /// loads the model that the adapter names, with the adapter; see [`ModelFiles`].
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        ModelFiles::at(path.as_ref())?.load(device, dtype)
    }

    /// Loads a model of a known configuration from an open checkpoint; see [`from_path`](Self::from_path).
    ///
    /// # Errors
    /// As [`from_path`](Self::from_path).
    fn from_checkpoint(
        checkpoint: &TensorFiles,
        config: &Self::Config,
        device: &B::Device,
        dtype: Option<DType>,
    ) -> Result<(Self, Report)> {
        let skeleton = Self::skeleton_for(checkpoint, config, dtype)?;
        Ok(load(skeleton, checkpoint, &Self::published_names(config), &LoadOptions::new(device))?)
    }

    /// Writes `config.json` and `model.safetensors` under the published names, so that the library of the published model
    /// loads them.
    ///
    /// # Errors
    /// [`published_config`](Self::published_config) refuses the model; it has adapters that are not merged; the directory
    /// or a file cannot be written. Existing files stay unchanged.
    fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        self.save_sharded(directory, None)
    }

    /// Saves a model as [`save_pretrained`](Self::save_pretrained) does, in files of at most `max_shard_bytes` with an index
    /// if it is larger than that. A larger tensor has a file of its own. `None` writes one file.
    ///
    /// # Errors
    /// As [`save_pretrained`](Self::save_pretrained).
    fn save_sharded(&self, directory: impl AsRef<Path>, max_shard_bytes: Option<usize>) -> Result<()> {
        let (config, names) = (self.published_config()?, Self::published_names(self.config()));
        let options = SaveOptions { max_shard_bytes, constants: self.published_constants(), ..SaveOptions::default() };
        save::save(self, config, &names, directory.as_ref(), &options)
    }
}

/// The fields of a configuration as they are written.
pub(crate) fn fields_of(config: &impl Serialize) -> Result<Map<String, Value>> {
    match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(ModelError::Config { reason: "the configuration is not an object in JSON".into() }),
        Err(error) => Err(ModelError::Config { reason: error.to_string() }),
    }
}
