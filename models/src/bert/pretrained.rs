use burn::tensor::DType;
use grove_backend::Backend;
use grove_tree::{Key, Tree};
use grove_weights::{Checkpoint, LoadOptions, NameMap, Report, load};
use serde_json::{Map, Value};
use std::path::Path;

use super::{
    Bert, BertConfig, BertHead, WithHead,
    names::{encoder_below_head, published_names},
};
use crate::{
    error::{ModelError, Result},
    pretrained::{config_beside, config_file, read_json, resolve, save_pretrained},
};

impl BertConfig {
    /// Reads and checks a `config.json`, given by its file or its directory.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or describes an invalid model. The error names the file.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self> {
        let file = config_file(path.as_ref());
        let fields: Map<String, Value> = read_json(&file)?;
        let wrong = |reason: String| ModelError::Json { file: file.clone(), reason };
        let config = Self::from_json(fields).map_err(|error| wrong(error.to_string()))?;
        config.validate().map_err(|error| wrong(error.to_string()))?;
        Ok(config)
    }

    /// The `config.json` that belongs to a model: in its directory, or beside its weights file.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        Self::from_file(config_beside(model.as_ref()))
    }
}

impl<B: Backend> Bert<B> {
    /// Loads a published model: a directory, a weights file with its `config.json` beside it, or a hub id such as
    /// `google-bert/bert-base-uncased`, which is downloaded unless it is in the cache. It has a pooler if the file has
    /// one; heads are ignored.
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
        let config = BertConfig::beside(&path)?;
        let checkpoint = Checkpoint::open(path)?;
        let pooler = has_pooler(&checkpoint, &config);
        let names = published_names(&config, pooler);
        place(Self::skeleton(&config, pooler)?, &checkpoint, &names, device, dtype, true)
    }

    /// Writes `config.json` and `model.safetensors` under the published names, so that transformers loads them.
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        let names = published_names(&self.config, self.pooler.is_some());
        write(self, &self.config, "Model", &names, directory.as_ref())
    }
}

impl<B: Backend, H: BertHead<B>> WithHead<Bert<B>, H> {
    /// The names of its files.
    pub fn published_names(config: &BertConfig) -> NameMap {
        H::names(encoder_below_head(config, H::pooled(config.model_type)), config)
    }

    /// Loads a published model with this head: a directory, a weights file with its `config.json` beside it, or a hub
    /// id, which is downloaded unless it is in the cache.
    ///
    /// # Errors
    /// The error names the file or the hub's answer, and what to do.
    pub fn from_pretrained(source: &str, device: &B::Device) -> Result<Self> {
        Ok(Self::from_path(resolve(source)?, device, None)?.0)
    }

    /// Loads a model with this head from a directory or a weights file with its `config.json` beside it, with weights
    /// as `dtype` (f32 if `None`), and reports which names matched.
    ///
    /// # Errors
    /// The error names the file, the tensor if one is at fault, and what to do.
    pub fn from_path(path: impl AsRef<Path>, device: &B::Device, dtype: Option<DType>) -> Result<(Self, Report)> {
        let config = BertConfig::beside(&path)?;
        let names = Self::published_names(&config);
        place(Self::skeleton(&config)?, &Checkpoint::open(path)?, &names, device, dtype, true)
    }

    /// Loads a published encoder with a new head for fine-tuning. Tensors that the file lacks, or has for another
    /// number of labels than `config`, get initial weights. The report lists them.
    ///
    /// # Errors
    /// The error names the file and what to do. A file that holds no part of the encoder is an error too.
    pub fn with_new_head(
        path: impl AsRef<Path>,
        config: &BertConfig,
        key: Key,
        device: &B::Device,
        dtype: Option<DType>,
    ) -> Result<(Self, Report)> {
        let checkpoint = Checkpoint::open(&path)?;
        // The encoder itself must be whole, and is read strictly; the second reading is for the head.
        let encoder_names = published_names(config, false);
        let (bert, _) = place(Bert::skeleton(config, false)?, &checkpoint, &encoder_names, device, dtype, true)?;
        let fresh = Self::init(config, key, device)?;
        let (mut model, report) = place(fresh, &checkpoint, &Self::published_names(config), device, dtype, false)?;
        (model.bert.embeddings, model.bert.encoder) = (bert.embeddings, bert.encoder);
        Ok((model, report))
    }

    /// Writes `config.json` and `model.safetensors` under the published names, so that transformers loads them.
    ///
    /// # Errors
    /// The directory or a file cannot be written; existing files stay unchanged.
    pub fn save_pretrained(&self, directory: impl AsRef<Path>) -> Result<()> {
        let config = &self.bert.config;
        write(self, config, H::CLASS, &Self::published_names(config), directory.as_ref())
    }
}

fn has_pooler(checkpoint: &Checkpoint, config: &BertConfig) -> bool {
    ["", config.model_type.prefix()].iter().any(|prefix| checkpoint.contains(&format!("{prefix}pooler.dense.weight")))
}

fn place<B: Backend, M: Tree<B>>(
    skeleton: M,
    checkpoint: &Checkpoint,
    names: &NameMap,
    device: &B::Device,
    dtype: Option<DType>,
    strict: bool,
) -> Result<(M, Report)> {
    let options = LoadOptions { dtype, strict, ..LoadOptions::new(device) };
    Ok(load(skeleton, checkpoint, names, &options)?)
}

fn write<B: Backend, M: Tree<B>>(
    model: &M,
    config: &BertConfig,
    class: &str,
    names: &NameMap,
    directory: &Path,
) -> Result<()> {
    let mut fields = config.to_json();
    fields.insert("architectures".into(), vec![format!("{}{class}", config.model_type.class())].into());
    save_pretrained(model, &fields, names, directory)
}
