//! Reading and writing the JSON files beside published weights.

use grove_backend::Backend;
use grove_tree::Tree;
use grove_weights::{HubOptions, NameMap, SaveOptions, Source, Wanted, save_model};
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
    serde_json::from_slice(&bytes).map_err(|error| ModelError::Json { file: file.into(), reason: error.to_string() })
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
