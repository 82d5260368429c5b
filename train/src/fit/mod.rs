//! The loop of a long run.

mod begin;
mod best;
mod logs;
mod options;
mod run;

pub use options::{Duration, Ended, Evaluation, FitOptions, Fitted, NonFinite, TrainState};
pub use run::fit;
