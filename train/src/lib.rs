//! Training: data, steps, loops, checkpoints and logs.
//!
//! [`train_step`] makes a train step, a pure function. [`fit`] is the training loop around it, with evaluation,
//! checkpoints, logs and exact resumption.
#![warn(missing_docs)]

mod accumulate;
mod arrays;
pub mod checkpoint;
pub mod classify;
mod confusion;
pub mod data;
mod ema;
mod error;
mod evaluate;
mod fit;
mod gradients;
mod interrupt;
mod lock;
pub mod log;
mod masked_lm;
mod outcome;
mod ranks;
mod run_directory;
mod scale;
mod settings;
mod step;

pub use checkpoint::{CheckpointManager, Restored, RunProgress};
pub use confusion::{ClassifierScore, ConfusionMatrix, ValueScore};
pub use ema::{ema_model, ema_step};
pub use error::{Result, TrainError};
pub use evaluate::{token_loss, token_loss_on};
pub use fit::{
    Differentiated, Ended, Evaluation, FitOptions, Fitted, JitLoss, KeepModel, NonFinite, RateCurve, RateSearch,
    RunDuration, RunSummary, TrainState, find_learning_rate, fit, fit_jitted,
};
pub use interrupt::{Stop, stop_on_interrupt, stop_on_interrupt_of};
pub use lock::RunLock;
pub use masked_lm::{MaskedLmScore, MaskedLmTask, fit_masked_lm, masked_lm_score};
pub use outcome::{Outcome, StepOptions};
pub use run_directory::RunDirectory;
pub use scale::LossScale;
pub use settings::{DataIdentity, RunSettings, SettingDifference};
pub use step::{Metrics, Trainable, train_step};
