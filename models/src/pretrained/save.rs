//! Saving of models in the published format.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_files::{FileError, write_json};
use grove_tree::{AnyArray, Path as TreePath, Tree};
use grove_weights::{NameMap, SaveOptions, save_model};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::Path};

use crate::error::{ModelError, Result};

/// Saves a model's weights under their published names, and its `config.json`, including the dtype.
pub(super) fn save<B: Backend, M: Tree<B>>(
    model: &M,
    config: Map<String, Value>,
    names: &NameMap,
    directory: &Path,
    options: &SaveOptions,
) -> Result<()> {
    let config = with_dtype(model, config)?;
    std::fs::create_dir_all(directory).map_err(FileError::at(directory))?;
    save_model(model, names, directory, options)?;
    Ok(write_json(&directory.join("config.json"), &config)?)
}

/// Returns a configuration with the dtype of most of the model's bytes, under transformers' key (`dtype`, or
/// `torch_dtype` in transformers 4). The dtype is written if the configuration already had the key, or if it is not
/// f32, the default.
///
/// # Errors
/// [`ModelError::UnmergedAdapters`].
fn with_dtype<B: Backend, M: Tree<B>>(model: &M, mut config: Map<String, Value>) -> Result<Map<String, Value>> {
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
    let Some((dtype, _)) = bytes.into_iter().max_by_key(|(_, bytes)| *bytes) else { return Ok(config) };
    let mut keys: Vec<&str> = ["dtype", "torch_dtype"].into_iter().filter(|key| config.contains_key(*key)).collect();
    if keys.is_empty() && dtype != "float32" {
        keys.push("dtype");
    }
    config.extend(keys.into_iter().map(|key| (key.to_owned(), dtype.into())));
    Ok(config)
}

/// Returns PyTorch's name of a floating-point dtype.
fn torch_name(dtype: DType) -> Option<&'static str> {
    match dtype {
        DType::F64 => Some("float64"),
        DType::F32 | DType::Flex32 => Some("float32"),
        DType::F16 => Some("float16"),
        DType::BF16 => Some("bfloat16"),
        _ => None,
    }
}
