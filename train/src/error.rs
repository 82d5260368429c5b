use std::path::PathBuf;

use grove_files::FileError;
use grove_models::ModelError;
use grove_text::TextError;
use grove_weights::WeightsError;

use crate::{SettingDifference, data::DataError, log::LogError};

/// Errors of a training run.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// The data could not be read.
    #[error(transparent)]
    Data(#[from] DataError),

    /// A log could not be written.
    #[error(transparent)]
    Log(#[from] LogError),

    /// A model or a checkpoint could not be written or read.
    #[error(transparent)]
    Weights(#[from] WeightsError),

    /// A model's files could not be read or written, or the model rejects its input.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// A tokenizer could not be read or written.
    #[error(transparent)]
    Text(#[from] TextError),

    /// Error of the operating system.
    #[error(transparent)]
    Io(#[from] FileError),

    /// The checkpoint was written by a later version of grove.
    #[error("{} has format {found}; this version of grove reads format {known}: update grove, or train in another directory", path.display())]
    NewerCheckpoint {
        /// Directory of the checkpoint.
        path: PathBuf,
        /// Format version of the checkpoint.
        found: u64,
        /// Format version that this version of grove reads and writes.
        known: u64,
    },

    /// The checkpoint belongs to another model, another optimizer or other options.
    #[error(
        "{} is the checkpoint of another model or optimizer, and cannot be resumed with these options: {reason}",
        path.display()
    )]
    OtherModel {
        /// Directory of the checkpoint.
        path: PathBuf,
        /// The first leaves that differ.
        reason: String,
    },

    /// All checkpoints of a directory are damaged.
    #[error("no checkpoint in {} is complete: {reason}; remove them to start again", directory.display())]
    AllDamaged {
        /// The directory.
        directory: PathBuf,
        /// Damage of the newest one.
        reason: String,
    },

    /// The directory of a new run already has a run.
    #[error("{} already has a run at step {step}: resume it, or give another directory", directory.display())]
    RunExists {
        /// Directory of the run.
        directory: PathBuf,
        /// Step of the newest checkpoint.
        step: u64,
    },

    /// Another run uses the directory.
    #[error(
        "{} is in use by another run{}: wait until it ends, or give another directory",
        directory.display(),
        holder.as_ref().map_or_else(String::new, |holder| format!(", {holder}"))
    )]
    RunLocked {
        /// Directory of the run.
        directory: PathBuf,
        /// Process that holds the lock, if known.
        holder: Option<String>,
    },

    /// The run in the directory was started with other settings.
    #[error(
        "{} belongs to a run with other settings: {}; use the settings that it started with, or continue anyway \
         with `resume_anyway`",
        path.display(),
        listed(differences)
    )]
    OtherSettings {
        /// Directory of the checkpoint.
        path: PathBuf,
        /// Settings that differ.
        differences: Vec<SettingDifference>,
    },

    /// The loss or the gradient is not finite.
    #[error("the {what} is {value} at step {step}{}; {}", in_a_row(*skipped), advice(kept))]
    NotFinite {
        /// `loss` or `norm of the gradient`.
        what: &'static str,
        /// NaN or infinity.
        value: f64,
        /// 1-based step.
        step: u64,
        /// Number of consecutive steps directly before this one that were skipped for the same reason.
        skipped: u64,
        /// Newest checkpoint, whose values are all finite.
        kept: Option<PathBuf>,
    },

    /// Invalid options.
    #[error("{0}")]
    Options(String),

    /// Any other error of an evaluation.
    #[error("the evaluation failed: {0}")]
    Evaluation(Box<dyn std::error::Error + Send + Sync>),
}

// `main` prints a returned error with `Debug`, so `Debug` shows the message.
impl std::fmt::Debug for TrainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Lists all differences in one sentence.
pub(crate) fn listed(differences: &[SettingDifference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn in_a_row(skipped: u64) -> String {
    match skipped {
        0 => String::new(),
        1 => ", after another such step that was left out".into(),
        skipped => format!(", after {skipped} such steps in a row that were left out"),
    }
}

fn advice(kept: &Option<PathBuf>) -> String {
    let how = "a lower learning rate, a longer warm-up or a smaller clipping norm helps";
    match kept {
        Some(path) => format!("the last good checkpoint is {}; {how}", path.display()),
        None => how.into(),
    }
}

/// Result of the training loops and checkpoints of this crate.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;
