//! Reading and writing the JSON files beside published weights.

use burn::tensor::{DType, TensorData};
use grove_backend::Backend;
use grove_text::printable::error_message;
use grove_tree::{AnyArray, Path as TreePath, Tree};
use grove_weights::{Checkpoint, HubOptions, NameMap, SaveOptions, Source, StoredDtype, Wanted, save_model};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::error::{ModelError, Result};

/// Largest JSON file that is read: a configuration has kilobytes, a large tokenizer some ten megabytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Reads a JSON file into a value.
///
/// # Errors
/// [`ModelError::Io`] if it cannot be read, [`ModelError::Json`] where it is no such JSON.
pub fn read_json<T: DeserializeOwned>(file: &Path) -> Result<T> {
    let io = |source| ModelError::Io { file: file.into(), source };
    let len = std::fs::metadata(file).map_err(io)?.len();
    if len > MAX_JSON_BYTES {
        let reason = format!("{len} bytes are too many for such a file");
        return Err(ModelError::Json { file: file.into(), reason });
    }
    let bytes = std::fs::read(file).map_err(io)?;
    // The error may quote a value of the file, however long.
    let json =
        |error: serde_json::Error| ModelError::Json { file: file.into(), reason: error_message(&error.to_string()) };
    serde_json::from_slice(&bytes).map_err(json)
}

/// Path of a configuration that is given by its file or its directory.
pub(crate) fn config_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("config.json") } else { path.to_owned() }
}

/// Reads a `config.json`, given by its file or its directory, and checks it. Errors name the file.
pub(crate) fn read_config<C: DeserializeOwned>(path: &Path, validate: impl Fn(&C) -> Result<()>) -> Result<C> {
    let file = config_file(path);
    let config: C = read_json(&file)?;
    validate(&config).map_err(|error| ModelError::Json { file, reason: error.to_string() })?;
    Ok(config)
}

/// The `config.json` that belongs to a model: in its directory, or beside its weights file.
pub(crate) fn config_beside(model: &Path) -> PathBuf {
    if model.is_dir() { model.join("config.json") } else { model.with_file_name("config.json") }
}

/// Local path of a published model's files, given by a directory, a file, or a hub id. A hub id is downloaded unless it
/// is in the cache.
pub(crate) fn resolve(source: &str) -> Result<PathBuf> {
    Ok(Source::parse(source)?.resolve(&HubOptions::from_env(), &Wanted::model())?)
}

/// A large model's skeleton with each leaf in the type in which it is held: matrices and tables as `dtype`, or as they are
/// in the file where `None` (what is quantised there, and cannot be here, in f16); vectors, which are few, in the type that
/// the model computes in: f32 where the backend takes weights of other types with that, else the matrices' own.
pub(crate) fn computing_in<B: Backend, M: Tree<B>>(
    skeleton: M,
    checkpoint: &Checkpoint,
    names: &NameMap,
    dtype: Option<DType>,
) -> M {
    let held = |path: &str| {
        let (_, info) = names.published(checkpoint, path)?;
        Some(match info.dtype {
            _ if info.quantised.is_some() => DType::F16,
            StoredDtype::F16 => DType::F16,
            StoredDtype::BF16 => DType::BF16,
            _ => DType::F32,
        })
    };
    let mut computing = if B::MIXED_DTYPE_WEIGHTS { Some(DType::F32) } else { dtype };
    // The first matrix, a table of tokens, decides.
    skeleton.visit(&mut TreePath::root(), &mut |path: &TreePath, leaf: &AnyArray<B>| {
        if leaf.shape().len() == 2 && leaf.dtype().is_float() && computing.is_none() {
            computing = held(path.as_str());
        }
    });
    skeleton.map(&mut TreePath::root(), &mut |path, leaf| {
        if !leaf.dtype().is_float() {
            return leaf;
        }
        let dtype = match leaf.shape().len() {
            2 => dtype.or_else(|| held(path.as_str())),
            _ => computing,
        };
        AnyArray::absent(leaf.shape(), dtype.unwrap_or(DType::F32))
    })
}

/// Writes a model's weights under their published names, and its `config.json`, which names the type that they have.
pub(crate) fn save_pretrained<B: Backend, M: Tree<B>>(
    model: &M,
    config: &impl Serialize,
    names: &NameMap,
    directory: &Path,
) -> Result<()> {
    save_with_constants(model, config, names, directory, BTreeMap::new())
}

/// As [`save_pretrained`], with tensors that the library reading the file expects and no leaf holds.
pub(crate) fn save_with_constants<B: Backend, M: Tree<B>>(
    model: &M,
    config: &impl Serialize,
    names: &NameMap,
    directory: &Path,
    constants: BTreeMap<String, TensorData>,
) -> Result<()> {
    let config = described(model, config, directory)?;
    std::fs::create_dir_all(directory).map_err(|source| ModelError::Io { file: directory.into(), source })?;
    save_model(model, names, directory, &SaveOptions { constants, ..SaveOptions::default() })?;
    write_json(&directory.join("config.json"), &config)
}

/// Returns a configuration with the dtype of the model's matrices, under transformers' names (`torch_dtype` until its
/// version 4). It is written if the configuration named one already, or if it is not f32, the default.
///
/// # Errors
/// [`ModelError::UnmergedAdapters`]; the configuration cannot be written as JSON.
fn described<B: Backend, M: Tree<B>>(model: &M, config: &impl Serialize, directory: &Path) -> Result<Value> {
    let mut bytes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut adapter = None;
    model.visit(&mut TreePath::root(), &mut |path: &TreePath, leaf: &AnyArray<B>| {
        if path.as_str().split('.').any(|name| name == "low_rank") {
            adapter.get_or_insert_with(|| path.to_string());
        }
        if let Some(name) = torch_name(leaf.dtype()).filter(|_| !path.is_buffer()) {
            *bytes.entry(name).or_default() += leaf.len() * leaf.dtype().size();
        }
    });
    if let Some(path) = adapter {
        return Err(ModelError::UnmergedAdapters { path });
    }
    let mut config = serde_json::to_value(config)
        .map_err(|error| ModelError::Json { file: directory.join("config.json"), reason: error.to_string() })?;
    let (Some((dtype, _)), Some(fields)) = (bytes.into_iter().max_by_key(|(_, bytes)| *bytes), config.as_object_mut())
    else {
        return Ok(config);
    };
    let named = ["dtype", "torch_dtype"].map(|key| (key, fields.contains_key(key)));
    for (key, _) in named.iter().filter(|(_, named)| *named) {
        fields.insert((*key).into(), dtype.into());
    }
    if dtype != "float32" && named.iter().all(|(_, named)| !named) {
        fields.insert("dtype".into(), dtype.into());
    }
    Ok(config)
}

/// PyTorch's name of a floating-point type.
fn torch_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F64 => Some("float64"),
        DType::F32 | DType::Flex32 => Some("float32"),
        DType::F16 => Some("float16"),
        DType::BF16 => Some("bfloat16"),
        _ => None,
    }
}

/// Writes a value as JSON beside the old file and takes its name at the end.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })?;
    write_text(file, &text)
}

/// Writes a text beside the old file and takes its name at the end.
pub(crate) fn write_text(file: &Path, text: &str) -> Result<()> {
    let written = grove_files::write_atomically(file, |writer| writer.write_all(text.as_bytes()));
    Ok(written.map_err(grove_weights::WeightsError::from)?)
}
