//! The training loop.

mod begin;
mod best;
mod find_rate;
mod jitted;
mod keep;
mod logs;
mod options;
mod pending;
mod run;
mod update;

pub use find_rate::{RateCurve, RateSearch, find_learning_rate};
pub use jitted::{Differentiated, JitLoss, fit_jitted};
pub use keep::KeepModel;
pub use options::{Ended, Evaluation, FitOptions, Fitted, NonFinite, RunDuration, RunSummary, TrainState};
pub use run::fit;
