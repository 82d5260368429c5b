//! Code shared by the commands that train: options, the run, and the report at its end.

mod job;
mod options;
mod report;
mod settings;

use std::process::ExitCode;

use crate::finish;
use crate::prelude::*;
pub use job::{Job, Setup, new_model, new_tokenizer};
pub use options::{RunArgs, TrainingArgs, at_least_one, check_layer_decay, fraction, not_negative};
pub use report::Summary;
pub use settings::config_json;

/// Exit status of a program that was ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// As [`finish`], for a run that may have been interrupted.
pub fn finish_run(body: impl FnOnce() -> Result<Ended, Exit>) -> ExitCode {
    let mut interrupted = false;
    let status = finish(|| {
        interrupted = body()? == Ended::Interrupted;
        Ok(())
    });
    if interrupted { ExitCode::from(INTERRUPTED) } else { status }
}
