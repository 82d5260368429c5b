//! Reading and writing the JSON files beside published weights.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_text::printable::error_message;
use grove_tree::{AnyArray, Path as TreePath, Tree};
use grove_weights::{Checkpoint, HubOptions, NameMap, SaveOptions, Source, StoredDtype, Wanted, save_model};
use serde::{Serialize, de::DeserializeOwned};
use std::path::{Path, PathBuf};

use crate::error::{ModelError, Result};

/// Largest JSON file that is read: a configuration has kilobytes, a large tokenizer some ten megabytes.
const MAX_JSON_BYTES: u64 = 256 << 20;

/// Reads a JSON file into a value.
///
/// # Errors
/// [`ModelError::Io`] where it cannot be read, [`ModelError::Json`] where it is no such JSON.
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

/// Where a configuration lies that is given as such or by its directory.
pub(crate) fn config_file(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("config.json") } else { path.to_owned() }
}

/// The `config.json` that belongs to a model: in its directory, or beside its weights file.
pub(crate) fn config_beside(model: &Path) -> PathBuf {
    if model.is_dir() { model.join("config.json") } else { model.with_file_name("config.json") }
}

/// Where a published model's files lie: a directory, a file, or a hub id, which is downloaded unless it lies in the cache.
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
    let mut computing = if B::WIDENS_WEIGHTS { Some(DType::F32) } else { dtype };
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

/// Writes a model's weights under their published names, and its `config.json`.
pub(crate) fn save_pretrained<B: Backend, M: Tree<B>>(
    model: &M,
    config: &impl Serialize,
    names: &NameMap,
    directory: &Path,
) -> Result<()> {
    std::fs::create_dir_all(directory).map_err(|source| ModelError::Io { file: directory.into(), source })?;
    save_model(model, names, directory, &SaveOptions::default())?;
    write_json(&directory.join("config.json"), config)
}

/// Writes a value as JSON beside the old file and takes its name at the end.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })?;
    write_text(file, &text)
}

/// Writes a text beside the old file and takes its name at the end.
pub(crate) fn write_text(file: &Path, text: &str) -> Result<()> {
    grove_weights::write_atomically(file, |writer| {
        std::io::Write::write_all(writer, text.as_bytes()).map_err(|source| grove_weights::WeightsError::Io {
            action: "write",
            path: file.into(),
            source,
        })
    })?;
    Ok(())
}
