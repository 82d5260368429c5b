use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fs::File,
    io::{Error, ErrorKind, Write},
    path::Path,
};

use super::exact;
use crate::{Result, RunSettings, TrainError, data::Position};

/// The format that this grove reads and writes.
const FORMAT: u64 = 1;

/// Progress of a run: everything besides the arrays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunProgress {
    /// Steps made.
    pub step: u64,
    /// The next batch.
    pub position: Position,
    /// The run's key, from which each step's comes.
    pub key: [u32; 2],
    /// Seconds of training, all resumes together.
    pub seconds: f64,
    /// The best evaluation: its step, and its value of the metric that [`FitOptions::keep_model`](crate::FitOptions::keep_model)
    /// names.
    #[serde(with = "exact::scored")]
    pub best: Option<(u64, f64)>,
    /// Evaluations since then.
    pub stale: u64,
    /// Loss of the evaluation of the model that the run keeps.
    #[serde(default, with = "exact::number", skip_serializing_if = "Option::is_none")]
    pub held_out_loss: Option<f64>,
    /// Metrics since the last record in the logs: sums, and the number of steps of each.
    #[serde(default, with = "exact::sums")]
    pub unrecorded: BTreeMap<String, (f64, u64)>,
    /// Steps that were left out, as their loss or gradient was not finite.
    #[serde(default)]
    pub skipped: u64,
    /// Those of them since the last good step.
    #[serde(default)]
    pub skipped_in_a_row: u64,
    /// Settings of the run; `None` in checkpoints of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<RunSettings>,
}

/// `checkpoint.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The layout of the directory.
    pub format: u64,
    /// SHA-256 of the file of arrays, in hexadecimal digits.
    pub state_sha256: String,
    /// SHA-256 of this file as it was with zeros here.
    pub manifest_sha256: String,
    /// Progress of the run.
    #[serde(flatten)]
    pub progressed: RunProgress,
}

/// The format alone: what follows may be anything in a later one.
#[derive(Deserialize)]
struct Format {
    format: u64,
}

impl Manifest {
    pub(super) fn new(progressed: RunProgress, state: &Path) -> Result<Self> {
        let state_sha256 = File::open(state).and_then(sha256).map_err(TrainError::io("read", state))?;
        Ok(Self { format: FORMAT, state_sha256, manifest_sha256: zeros(), progressed })
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(|error| TrainError::io("write", path)(error.into()))?;
        let text = text.replacen(&zeros(), &digest(&text), 1);
        let write = |mut file: File| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        File::create(path).and_then(write).map_err(TrainError::io("write", path))
    }

    /// The inner error says how the file is damaged; `checkpoint` is named where the format is newer.
    ///
    /// # Errors
    /// Those that are no damage: [`TrainError::NewerCheckpoint`], and [`TrainError::Io`] where the file cannot be read now.
    pub(super) fn read(path: &Path, checkpoint: &Path) -> Result<std::result::Result<Self, String>> {
        let damaged = |error: &dyn std::fmt::Display| Ok(Err(format!("{}: {error}", path.display())));
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if is_damage(&error) => return damaged(&error),
            Err(error) => return Err(TrainError::io("read", path)(error)),
        };
        match serde_json::from_str::<Format>(&text) {
            Ok(Format { format: found }) if found > FORMAT => {
                return Err(TrainError::NewerCheckpoint { path: checkpoint.into(), found, known: FORMAT });
            }
            Ok(_) => {}
            Err(error) => return damaged(&error),
        }
        let manifest: Self = match serde_json::from_str(&text) {
            Ok(manifest) => manifest,
            Err(error) => return damaged(&error),
        };
        if digest(&text.replacen(&manifest.manifest_sha256, &zeros(), 1)) != manifest.manifest_sha256 {
            return damaged(&"it does not have the checksum that was written in it");
        }
        Ok(Ok(manifest))
    }

    /// Compares the arrays with those that were written; the inner error says how they are damaged.
    ///
    /// # Errors
    /// [`TrainError::Io`] where the file cannot be read now.
    pub(super) fn check(&self, state: &Path) -> Result<std::result::Result<(), String>> {
        match File::open(state).and_then(sha256) {
            Ok(found) if found == self.state_sha256 => Ok(Ok(())),
            Ok(_) => Ok(Err(format!("{} does not have the checksum that was written with it", state.display()))),
            Err(error) if is_damage(&error) => Ok(Err(format!("{}: {error}", state.display()))),
            Err(error) => Err(TrainError::io("read", state)(error)),
        }
    }
}

/// True if an error of reading says that the file is not there or not whole. All others, such as too many open files,
/// no memory, no permission or a disk that does not answer, may be over the next time: what cannot be read now may be
/// good.
pub(super) fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidData | ErrorKind::UnexpectedEof)
}

/// As long as a digest.
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
