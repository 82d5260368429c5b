//! The loop of a long run.

mod begin;
mod best;
mod logs;
mod options;
mod run;

pub use options::{Ended, Evaluation, FitOptions, Fitted, NonFinite, RunDuration, RunSummary, TrainState};
pub use run::fit;
