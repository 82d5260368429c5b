use grove_files::FileError;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fmt::Display,
    fs::File,
    io::{Error, ErrorKind, Write},
    path::Path,
};

use super::exact;
use crate::{Result, RunSettings, TrainError, data::Position};

/// Version of the checkpoint format that this version of grove reads and writes.
const FORMAT: u64 = 1;

/// Progress of a run: the part of a checkpoint that is not arrays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Number of completed steps.
    pub step: u64,
    /// Position of the next batch.
    pub position: Position,
    /// Key of the run, from which the key of each step is derived.
    pub key: [u32; 2],
    /// Training time in seconds, summed over all resumes.
    pub seconds: f64,
    /// Best evaluation: its step, and its value of the metric of
    /// [`FitOptions::keep_model`](crate::FitOptions::keep_model).
    #[serde(with = "exact::scored")]
    pub best: Option<(u64, f64)>,
    /// Number of evaluations since the best one.
    pub stale: u64,
    /// Evaluation loss of the model that the run keeps.
    #[serde(default, with = "exact::number", skip_serializing_if = "Option::is_none")]
    pub held_out_loss: Option<f64>,
    /// Metrics since the last log record: the sum of each, and the number of steps in the sum.
    #[serde(default, with = "exact::sums")]
    pub unrecorded: BTreeMap<String, (f64, u64)>,
    /// Number of steps that were skipped because their loss or gradient was not finite.
    #[serde(default)]
    pub skipped: u64,
    /// Number of steps skipped since the last finite step.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Settings of the run; `None` in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<RunSettings>,
}

/// `checkpoint.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the checkpoint format.
    pub format: u64,
    /// SHA-256 of `state.safetensors`, in hexadecimal.
    pub state_sha256: String,
    /// SHA-256 of this file, computed with zeros in place of this value, in hexadecimal.
    pub manifest_sha256: String,
    /// Progress of the run.
    #[serde(flatten)]
    pub progressed: RunProgress,
}

/// The format version.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

impl Manifest {
    pub(super) fn new(progressed: RunProgress, state: &Path) -> Result<Self> {
        let state_sha256 = File::open(state).and_then(sha256).map_err(FileError::io("read", state))?;
        Ok(Self { format: FORMAT, state_sha256, manifest_sha256: zeros(), progressed })
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| FileError::io("write", path)(error.into()))?;
        let text = text.replacen(&zeros(), &digest(&text), 1);
        let write = |mut file: File| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        Ok(File::create(path).and_then(write).map_err(FileError::io("write", path))?)
    }

    /// Reads a manifest. `checkpoint` is the path that [`TrainError::NewerCheckpoint`] names.
    pub(super) fn read(path: &Path, checkpoint: &Path) -> Result<Self, ReadError> {
        let damaged = |error: &dyn Display| ReadError::Damaged(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| ReadError::io(path, error))?;
        // Read first, because a later version may change all other fields.
        let Format { format: found } = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
        if found > FORMAT {
            return Err(TrainError::NewerCheckpoint { path: checkpoint.into(), found, known: FORMAT }.into());
        }
        let manifest: Self = serde_json::from_str(&text).map_err(|error| damaged(&error))?;
        if digest(&text.replacen(&manifest.manifest_sha256, &zeros(), 1)) != manifest.manifest_sha256 {
            return Err(damaged(&"it does not have the checksum that was written in it"));
        }
        Ok(manifest)
    }

    /// Compares the arrays' file with its checksum.
    pub(super) fn check(&self, state: &Path) -> Result<(), ReadError> {
        let found = File::open(state).and_then(sha256).map_err(|error| ReadError::io(state, error))?;
        if found == self.state_sha256 {
            return Ok(());
        }
        let state = state.display();
        Err(ReadError::Damaged(format!("{state} does not have the checksum that was written with it")))
    }
}

/// Reason that a checkpoint cannot be read.
pub(crate) enum ReadError {
    /// Its files are missing, incomplete or damaged: a sentence.
    Damaged(String),
    /// Any other error. The checkpoint may be intact.
    Other(TrainError),
}

impl ReadError {
    fn io(path: &Path, error: Error) -> Self {
        match is_damage(&error) {
            true => Self::Damaged(format!("{}: {error}", path.display())),
            false => Self::Other(FileError::io("read", path)(error).into()),
        }
    }
}

impl<E: Into<TrainError>> From<E> for ReadError {
    fn from(error: E) -> Self {
        Self::Other(error.into())
    }
}

/// True if a read error means that the file is missing or incomplete. Other errors may be temporary (too many open
/// files, no memory, no permission, an unresponsive disk), so the file may be intact.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// Placeholder of the length of a digest.
fn zeros() -> String {
    "0".repeat(64)
}

fn digest(text: &str) -> String {
    hexadecimal(&Sha256::digest(text))
}

fn sha256(mut file: File) -> std::io::Result<String> {
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher)?;
    Ok(hexadecimal(&hasher.finalize()))
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
