//! Files of tensors.

use std::path::Path;

use grove_weights::TensorFiles;

use crate::{Refused, file};

/// Opens a file and reads all its tensors. Each accepted tensor must have the claimed number of bytes.
fn tensors(path: &Path) -> Result<(), Refused> {
    let checkpoint = TensorFiles::open(path)?;
    let names: Vec<String> = checkpoint.names().map(String::from).collect();
    let mut refused = None;
    for name in names {
        match checkpoint.tensor(&name) {
            Ok(data) => assert_eq!(data.bytes.len(), data.num_elements() * data.dtype.size(), "{name}"),
            // Types that no backend supports, blocks that are not decoded, and corrupted compressed data.
            Err(error) => refused = Some(error),
        }
    }
    refused.map_or(Ok(()), |error| Err(error.into()))
}

/// Reads a safetensors file.
///
/// # Errors
/// If the file is rejected.
pub fn safetensors(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("model.safetensors", bytes)?;
    tensors(&path)
}

/// Reads the index of a sharded model, `model.safetensors.index.json`. One shard exists, with tensors `a` and `b`.
///
/// # Errors
/// If the index is rejected.
pub fn shard_index(bytes: &[u8]) -> Result<(), Refused> {
    let (directory, path) = file("model.safetensors.index.json", bytes)?;
    let header =
        br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"I8","shape":[],"data_offsets":[8,9]}}"#;
    let shard = [&(header.len() as u64).to_le_bytes()[..], header, &[7; 9]].concat();
    std::fs::write(directory.path().join("model-00001-of-00001.safetensors"), shard)?;
    tensors(&path)
}

/// Reads a PyTorch file, in the new or the old format.
///
/// # Errors
/// If the file is rejected.
pub fn pickle(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("pytorch_model.bin", bytes)?;
    tensors(&path)
}

/// Reads a numpy archive.
///
/// # Errors
/// If the file is rejected.
pub fn npz(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("weights.npz", bytes)?;
    tensors(&path)
}

/// Reads a GGUF file: its tensors and its tokenizer.
///
/// # Errors
/// If the tensors are rejected.
pub fn gguf(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("model.gguf", bytes)?;
    let read = tensors(&path);
    // Not every file has a tokenizer.
    let _ = crate::models::tokenizer(&path);
    read
}
