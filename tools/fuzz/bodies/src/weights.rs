//! Files of tensors.

use std::path::Path;

use grove_weights::TensorFiles;

use crate::{Refused, file};

/// Opens a file and reads all its tensors. Of one that is accepted, each has as many bytes as it says.
fn tensors(path: &Path) -> Result<(), Refused> {
    let checkpoint = TensorFiles::open(path)?;
    let names: Vec<String> = checkpoint.names().map(String::from).collect();
    let mut refused = None;
    for name in names {
        match checkpoint.tensor(&name) {
            Ok(data) => assert_eq!(data.bytes.len(), data.num_elements() * data.dtype.size(), "{name}"),
            // Types that no backend has, blocks that are not decoded, and broken compressed data.
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// A safetensors file.
///
/// # Errors
/// It is refused.
pub fn safetensors(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("model.safetensors", bytes)?;
    tensors(&path)
}

/// The index of a model in several files, `model.safetensors.index.json`. One of them is there, with tensors `a` and `b`.
///
/// # Errors
/// It is refused.
pub fn shard_index(bytes: &[u8]) -> Result<(), Refused> {
    let (directory, path) = file("model.safetensors.index.json", bytes)?;
    let header =
        br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]}}"#;
    let shard = [&(header.len() as u64).to_le_bytes()[..], header, &[7; 9]].concat();
    std::fs::write(directory.path().join("model-00001-of-00001.safetensors"), shard)?;
    tensors(&path)
}

/// A file of PyTorch's, new or old.
///
/// # Errors
/// It is refused.
pub fn pickle(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("pytorch_model.bin", bytes)?;
    tensors(&path)
}

/// An archive of numpy's.
///
/// # Errors
/// It is refused.
pub fn npz(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("weights.npz", bytes)?;
    tensors(&path)
}

/// A GGUF file: its tensors and its tokenizer.
///
/// # Errors
/// One of them is refused.
pub fn gguf(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("model.gguf", bytes)?;
    let read = tensors(&path);
    // Not every file has one.
    let _ = crate::models::tokenizer(&path);
    read
}
