//! Code shared by the examples that train: options, the directory of a run, and the report at its end.

mod job;
mod options;
mod output;
mod report;
mod settings;

use grove::train::{Ended, TrainError, data::DataError};
use std::process::ExitCode;

use crate::{Exit, finish};
pub use job::{Job, Setup, new_model};
pub use options::{RunArgs, TrainingArgs, at_least_one, check_layer_decay, fraction, not_negative};
pub use output::Output;
pub use report::Summary;
pub use settings::{config_json, model_settings};

/// Exit status of a program that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Batches among which texts of similar length are brought together.
pub const POOL: usize = 50;

/// Converts the error of an evaluation to one of the training loop.
pub fn evaluation_failed(error: Exit) -> TrainError {
    DataError::other(format!("{error:?}")).into()
}

/// As [`finish`], for a run that may have been interrupted.
pub fn finish_run(body: impl FnOnce() -> Result<Ended, Exit>) -> ExitCode {
    let mut interrupted = false;
    let status = finish(|| {
        interrupted = body()? == Ended::Interrupted;
        Ok(())
    });
    if interrupted { ExitCode::from(INTERRUPTED) } else { status }
}
