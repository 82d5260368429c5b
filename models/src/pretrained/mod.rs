//! Loading and saving of published models: a `config.json`, and weights under published names.

mod dtype;
mod json;
mod save;
mod with_adapter;

use burn::tensor::{DType, TensorData};
use grove_backend::Backend;
use grove_files::{FileError, name_unknown_keys, read_json};
use grove_transform::eval_shape;
use grove_tree::{Init, Key, Tree, cast};
use grove_weights::{LoadOptions, NameMap, Report, SaveOptions, TensorFiles, WeightsError, load, resolve_model};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    io::{Error, ErrorKind},
    path::Path,
};

use crate::{
    error::{ModelError, Result, invalid},
    model_files::ModelFiles,
};

pub(crate) use dtype::computing_in;
pub(crate) use json::{class_name, config_beside, file_beside, rename};
pub(crate) use with_adapter::adapted;

/// Configuration of a model: the fields of its `config.json`.
///
/// Only serde's traits are required. Override [`read`](Self::read) and [`of`](Self::of) for models whose files differ
/// from the struct or have no `config.json`.
///
/// ```
/// use grove_models::{Gpt2Config, PretrainedConfig};
/// let config = Gpt2Config::preset("gpt2-medium")?;
/// assert_eq!((config.n_layer, config.n_embd), (24, 1024));
/// assert!(Gpt2Config { n_head: 3, ..config }.validate().is_err());
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub trait PretrainedConfig: Clone + Serialize + DeserializeOwned {
    /// Checks that the configuration describes a possible model.
    ///
    /// # Errors
    /// [`ModelError::Config`] naming the field.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the keys of the file that change nothing, since the configuration does not know them. Loading names them
    /// once on standard error.
    fn unknown_keys(&self) -> Vec<&str> {
        Vec::new()
    }

    /// Returns the configuration of a published size.
    ///
    /// # Errors
    /// [`ModelError::UnknownPreset`], with the known names, for any other name.
    fn preset(name: &str) -> Result<Self> {
        Err(ModelError::UnknownPreset { name: name.into(), known: "none".into() })
    }

    /// Reads a `config.json` without checking its values. Use [`from_file`](Self::from_file).
    ///
    /// # Errors
    /// [`ModelError::File`], which names the file.
    fn read(file: &Path) -> Result<Self> {
        Ok(read_json(file)?)
    }

    /// Returns the configuration of a model whose weights are open: by default its `config.json`; a family may also use
    /// other files and the weights.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    fn of(model: impl AsRef<Path>, _checkpoint: &TensorFiles) -> Result<Self> {
        Self::beside(model)
    }

    /// Reads and checks a `config.json`, given the file or its directory. Its [unknown keys](Self::unknown_keys) are named
    /// once on standard error.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let file = json::config_file(path.as_ref());
        checked(Self::read(&file)?, &file)
    }

    /// Reads and checks the `config.json` of a model: in its directory, or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    fn beside(model: impl AsRef<Path>) -> Result<Self> {
        let file = config_beside(ModelFiles::at(model.as_ref())?.path());
        if !file.exists() {
            let advice = "there is no such file; put the config.json of the model beside its weights";
            return Err(FileError::Io { file, source: Error::new(ErrorKind::NotFound, advice) }.into());
        }
        Self::from_file(file)
    }
}

/// A model that is loaded and saved with its configuration, like transformers' `PreTrainedModel`.
///
/// A model provides its configuration, its constructor and the published names of its tensors. All other methods have
/// defaults.
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
    /// Configuration of the model.
    type Config: PretrainedConfig;

    /// True if matrices may stay quantized in memory, as they are in a GGUF file.
    const KEEPS_QUANTIZED: bool = false;

    /// Creates a model. `init` determines if it has initial weights, or none as in [`skeleton`](Self::skeleton).
    ///
    /// # Errors
    /// [`ModelError::Config`] if the configuration is invalid.
    fn new(config: &Self::Config, init: &Init<B>) -> Result<Self>;

    /// Returns the model's configuration.
    fn config(&self) -> &Self::Config;

    /// Returns the published names of the model's leaves.
    fn published_names(config: &Self::Config) -> NameMap;

    /// Returns the content of the `config.json` that [`save_pretrained`](Self::save_pretrained) writes.
    ///
    /// # Errors
    /// The published format cannot describe the model.
    fn published_config(&self) -> Result<Map<String, Value>> {
        fields_of(self.config())
    }

    /// Returns tensors that other libraries expect in a file and that are not leaves of the model, by their published
    /// names.
    fn published_constants(&self) -> BTreeMap<String, TensorData> {
        BTreeMap::new()
    }

    /// Returns the model without weights, each leaf with the dtype that [`from_path`](Self::from_path) would give it:
    /// by default `dtype` for all leaves, f32 if `None`. Use it to compute the memory that a model needs.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn skeleton_for(checkpoint: &TensorFiles, config: &Self::Config, dtype: Option<DType>) -> Result<Self> {
        let _ = checkpoint;
        Ok(cast(Self::skeleton(config)?, dtype.unwrap_or(DType::F32).into()))
    }

    /// Creates a model with initial weights; see [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn init(config: &Self::Config, key: Key, device: &B::Device) -> Result<Self> {
        Self::new(config, &Init::new(key, device))
    }

    /// Returns the model without weights, for counting, printing and loading.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    fn skeleton(config: &Self::Config) -> Result<Self> {
        eval_shape(|init| Self::new(config, init))
    }

    /// Returns the model without weights, each leaf with the dtype that [`from_path`](Self::from_path) would give it.
    /// Reads only the headers of the weights. If a directory has no weights, its `config.json` suffices.
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

    /// Loads a published model from a directory, a weights file, or a hub id such as `openai-community/gpt2`. A hub id
    /// is downloaded unless it is cached.
    ///
    /// # Errors
    /// The error names the file or quotes the hub's answer, and says what to do.
    fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve_model(source)?, device, None)?.0)
    }

    /// Loads a model from a directory or a weights file with its configuration, and reports the names that matched.
    /// [`skeleton_for`](Self::skeleton_for) describes the dtypes. If the directory contains a peft adapter, loads the
    /// adapter and the base model that it names; see [`ModelFiles`].
    ///
    /// # Errors
    /// The error names the file and the tensor, if one is at fault, and says what to do.
    fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        ModelFiles::at(path.as_ref())?.load(device, dtype)
    }

    /// Loads a model of a known configuration from open tensor files; see [`from_path`](Self::from_path).
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

    /// Writes `config.json` and `model.safetensors` under the published names, so that the original library can load
    /// them.
    ///
    /// # Errors
    /// [`published_config`](Self::published_config) refuses the model; the model has unmerged adapters; the directory
    /// or a file cannot be written. Existing files stay unchanged.
    fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        self.save_sharded(directory, None)
    }

    /// Saves a model as [`save_pretrained`](Self::save_pretrained) does. A model of more than `max_shard_bytes` is
    /// split into files of at most that size, with an index. A single tensor that is larger has its own file. `None`
    /// writes one file.
    ///
    /// # Errors
    /// As [`save_pretrained`](Self::save_pretrained).
    fn save_sharded(&self, directory: impl AsRef<Path>, max_shard_bytes: Option<usize>) -> Result<()> {
        let (config, names) = (self.published_config()?, Self::published_names(self.config()));
        let options = SaveOptions { max_shard_bytes, constants: self.published_constants(), ..SaveOptions::default() };
        save::save(self, config, &names, directory.as_ref(), &options)
    }
}

/// Checks a configuration from a file. Names its [unknown keys](PretrainedConfig::unknown_keys) once on standard error.
pub(crate) fn checked<C: PretrainedConfig>(config: C, file: &Path) -> Result<C> {
    config.validate().map_err(|error| FileError::json(file, error.to_string()))?;
    name_unknown_keys(file, &config.unknown_keys());
    Ok(config)
}

/// Returns the sizes of a preset, from a table with a row for each name.
pub(crate) fn preset_sizes<T: Copy>(name: &str, table: &[(&str, T)]) -> Result<T> {
    let row = table.iter().find(|(known, _)| *known == name);
    row.map(|(_, sizes)| *sizes).ok_or_else(|| ModelError::UnknownPreset {
        name: name.into(),
        known: table.iter().map(|(known, _)| *known).collect::<Vec<_>>().join(", "),
    })
}

/// Returns the fields of a serialised configuration.
pub(crate) fn fields_of(config: &impl Serialize) -> Result<Map<String, Value>> {
    match serde_json::to_value(config) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => invalid("the configuration is not an object in JSON"),
        Err(error) => invalid(error.to_string()),
    }
}
