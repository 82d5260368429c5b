//! Files of a training run that are read back.

use grove_backend::Flex;
use grove_train::{CheckpointManager, log::read_metrics};
use grove_tree::Array;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::{Refused, file};

/// Reads the records of a run, `metrics.jsonl`.
///
/// # Errors
/// If the file is rejected.
pub fn metrics(bytes: &[u8]) -> Result<(), Refused> {
    let (_directory, path) = file("metrics.jsonl", bytes)?;
    read_metrics(&path)?;
    Ok(())
}

/// Returns the arrays of the run: two numbers each.
fn state() -> Vec<u8> {
    let header = br#"{"0":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"1":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}"#;
    [&(header.len() as u64).to_le_bytes()[..], header, &[0; 16]].concat()
}

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads the manifest of a run's checkpoint, `checkpoint.json`: unchanged, and with the correct checksums.
///
/// # Errors
/// If the manifest with correct checksums is rejected.
pub fn run(bytes: &[u8]) -> Result<(), Refused> {
    let _ = load(bytes);
    let Ok(mut manifest) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return load(bytes) };
    let zeros = "0".repeat(64);
    manifest.insert("state_sha256".into(), digest(&state()).into());
    manifest.insert("manifest_sha256".into(), zeros.clone().into());
    let text = serde_json::to_string_pretty(&manifest)?;
    load(text.replacen(&zeros, &digest(text.as_bytes()), 1).as_bytes())
}

/// Loads a run with one checkpoint and this manifest.
fn load(manifest: &[u8]) -> Result<(), Refused> {
    let directory = tempfile::tempdir()?;
    let checkpoint = directory.path().join("step-0000000007");
    std::fs::create_dir(&checkpoint)?;
    std::fs::write(checkpoint.join("state.safetensors"), state())?;
    std::fs::write(checkpoint.join("checkpoint.json"), manifest)?;
    let device = Default::default();
    let zeros = || Array::<Flex, 1>::new(burn::tensor::Tensor::zeros([2], &device));
    let restored = CheckpointManager::open(directory.path(), 2)?.load::<Flex, _>(&[zeros(), zeros()], &device)?;
    restored.map(drop).ok_or_else(|| "there is no checkpoint".into())
}
