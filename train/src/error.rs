use std::path::PathBuf;

use grove_files::FileError;
use grove_models::ModelError;
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

    /// A model's files could not be read or written, or it refuses its input.
    #[error(transparent)]
    Model(#[from] ModelError),

    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] FileError),

    /// The checkpoint was written by a later grove.
    #[error("{} has format {found}, and this grove reads format {known}: update grove, or train in another directory", path.display())]
    NewerCheckpoint {
        /// The checkpoint's directory.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The format that this grove reads and writes.
        known: u64,
    },

    /// The checkpoint is of another model, another optimizer or other options.
    #[error(
        "{} is the checkpoint of another model or optimizer, and cannot be resumed with these options: {reason}",
        path.display()
    )]
    OtherModel {
        /// The checkpoint's directory.
        path: PathBuf,
        /// The first leaves that differ.
        reason: String,
    },

    /// No checkpoint of a directory is whole.
    #[error("none of the checkpoints in {} is whole: {reason}; remove them to begin anew", directory.display())]
    AllDamaged {
        /// The directory.
        directory: PathBuf,
        /// The problem in the newest one.
        reason: String,
    },

    /// A run lies where a new one was to begin.
    #[error("{} already holds a run at step {step}: resume it, or name another directory", directory.display())]
    RunExists {
        /// The run's directory.
        directory: PathBuf,
        /// Its newest checkpoint's step.
        step: u64,
    },

    /// Another run writes to the directory.
    #[error(
        "{} is in use by another run{}: wait until it ends, or name another directory",
        directory.display(),
        holder.as_ref().map_or_else(String::new, |holder| format!(", {holder}"))
    )]
    RunLocked {
        /// The run's directory.
        directory: PathBuf,
        /// The process that holds the lock, where it is known.
        holder: Option<String>,
    },

    /// The run in the directory began with other settings.
    #[error(
        "{} belongs to a run with other settings: {}; give it the settings that it began with, or go on all the same \
         with `resume_anyway`",
        path.display(),
        listed(differences)
    )]
    OtherSettings {
        /// The checkpoint's directory.
        path: PathBuf,
        /// The settings that differ.
        differences: Vec<SettingDifference>,
    },

    /// The loss or the gradient is no longer a number.
    #[error("the {what} is {value} at step {step}{}; {}", in_a_row(*skipped), advice(kept))]
    NotFinite {
        /// `loss` or `norm of the gradient`.
        what: &'static str,
        /// NaN or infinity.
        value: f64,
        /// The step, from 1.
        step: u64,
        /// Steps before this one, without a good one in between, that were left out for the same reason.
        skipped: u64,
        /// The newest checkpoint, all of whose numbers are good.
        kept: Option<PathBuf>,
    },

    /// Options that make no sense.
    #[error("{0}")]
    Options(String),

    /// Any other error of an evaluation.
    #[error("the evaluation failed: {0}")]
    Evaluation(Box<dyn std::error::Error + Send + Sync>),
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for TrainError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// All differences, in one sentence.
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

impl TrainError {
    /// For `map_err` of what the operating system says.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = FileError::io(action, path);
        move |source| named(source).into()
    }
}

/// Result of everything in this crate's loops and checkpoints.
pub type Result<T, E = TrainError> = std::result::Result<T, E>;
