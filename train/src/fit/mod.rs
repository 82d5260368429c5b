//! The training loop.

mod begin;
mod best;
mod find_rate;
mod fitted;
mod jitted;
mod keep;
mod logs;
mod options;
mod pending;
mod run;
mod update;

pub use find_rate::{RateCurve, RateSearch, find_learning_rate};
pub use fitted::{Ended, Fitted, RunSummary};
pub use jitted::{Differentiated, JitLoss, fit_jitted};
pub use keep::KeepModel;
pub use options::{Evaluation, FitOptions, NonFinite, RunDuration, TrainState};
pub use run::fit;
