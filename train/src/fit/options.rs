use grove_backend::Backend;
use grove_distributed::Communicator;
use grove_optim::Schedule;
use grove_tree::Tree;
use serde::Serialize;
use std::{collections::BTreeMap, path::PathBuf};

use super::KeepModel;
use crate::{LossScale, Result, RunLock, RunSettings, StepOptions, Stop, TrainError};

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunDuration {
    /// So many steps.
    Steps(u64),
    /// So many passes over the data; parts of one are possible. The last step is a whole one, so it may take batches
    /// of the next pass.
    Epochs(f64),
}

/// Treatment of a step whose loss, or whose gradient's norm, is not finite. Both are looked at on the device, so that a
/// good step is none the slower.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// It ends the run with [`TrainError::NotFinite`].
    #[default]
    Stop,
    /// It is left out: parameters, buffers, the optimizer's state and the loss scale's stay as they were. Such steps are
    /// counted, in [`Fitted::skipped`] and in the logs.
    Skip {
        /// Such steps in a row; one more ends the run.
        max_consecutive: u64,
    },
    /// It is handed to the optimizer, which deals with it as
    /// [`apply_if_finite`](grove_optim::apply_if_finite) does; only buffers stay as they were. It is counted as with
    /// `Skip`.
    Optimizer {
        /// Such steps in a row; one more ends the run.
        max_consecutive: u64,
    },
}

impl NonFinite {
    /// Steps in a row that do not end the run.
    pub(super) fn max_consecutive(self) -> u64 {
        match self {
            Self::Stop => 0,
            Self::Skip { max_consecutive } | Self::Optimizer { max_consecutive } => max_consecutive,
        }
    }
}

/// Options of [`fit`](crate::fit). [`Default`] is a short run that writes nothing to the disk.
///
/// ```
/// use grove_train::{FitOptions, RunDuration};
/// # type B = burn_flex::Flex;
/// let options = FitOptions::<B> { length: RunDuration::Epochs(2.0), evaluate_every: 100, ..Default::default() };
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct FitOptions<B: Backend> {
    /// Length of the run. Default: 1 epoch.
    pub length: RunDuration,
    /// Batches whose mean gradient makes one step: 1. Each counts by its [`Outcome::weight`](crate::Outcome::weight).
    pub accumulate: usize,
    /// Trainable leaves, and dtype of the computation.
    pub step: StepOptions<B>,
    /// If true, the loss is scaled, which f16 needs. Default: false.
    pub loss_scaling: bool,
    /// Treatment of a step whose loss or gradient is not finite: it ends the run.
    pub non_finite: NonFinite,
    /// Decay of an exponential moving average of the model, which is then what is evaluated: none.
    pub ema: Option<f64>,
    /// Steps from one evaluation to the next; there is one at the end too. 0, the default, leaves them out.
    pub evaluate_every: u64,
    /// Number of consecutive evaluations without improvement after which the run ends. Default: never. A value that is not finite
    /// is no improvement. The metric is that of `keep_model`.
    pub patience: Option<u64>,
    /// The model that [`Fitted::into_model`] returns: the one with the best evaluation, or the last. Default: the one with the lowest
    /// `loss`. Metrics other than `loss` must be in every [`Evaluation`].
    pub keep_model: KeepModel,
    /// Steps from one record in the logs to the next: 10.
    pub log_every: u64,
    /// Steps from one checkpoint to the next: 500. There is one at the end, and one where the run is stopped, too.
    pub checkpoint_every: u64,
    /// Number of checkpoints to keep. Default: 2.
    pub keep_checkpoints: usize,
    /// Ranks that train together: each computes the gradients of its part of every batch. Default: one. The others than rank
    /// 0 write nothing, so the directory need not be shared. Where a collective fails, the job ends with a sentence and status 1;
    /// see [`Communicator::end_job`].
    pub ranks: Communicator,
    /// Directory of checkpoints and logs. Default: none. The directory gets `checkpoints/`, `best/`, `metrics.jsonl`,
    /// `tensorboard/`, `loss.svg` and `run.lock`.
    pub directory: Option<PathBuf>,
    /// The [`RunLock`] of the directory, where the program holds it already: else the run takes it.
    pub lock: Option<RunLock>,
    /// If true, resumes the run in that directory, if there is one; if false, a run in the directory is an error.
    /// Default: false.
    pub resume: bool,
    /// Goes on with it although it began with other settings, key or data: no.
    pub resume_anyway: bool,
    /// Settings of the run besides these options: seed, data, learning rate, sizes of the model. They are written into the
    /// checkpoints, and a resumed run has to have the same. None are known by default.
    pub settings: RunSettings,
    /// Schedule of the learning rate, for the logs only.
    pub learning_rate: Option<Schedule>,
    /// Unit of the rate in the logs, and its number in a batch, such as `("tokens", 4096)`.
    pub unit: Option<(&'static str, u64)>,
    /// Ends the run when it becomes true; see [`stop_on_interrupt`](crate::stop_on_interrupt).
    pub stop: Option<Stop>,
    /// If true, shows a progress bar on standard error. Default: false.
    pub progress: bool,
}

impl<B: Backend> Default for FitOptions<B> {
    fn default() -> Self {
        Self {
            length: RunDuration::Epochs(1.0),
            accumulate: 1,
            step: StepOptions::default(),
            loss_scaling: false,
            non_finite: NonFinite::Stop,
            ema: None,
            evaluate_every: 0,
            patience: None,
            keep_model: KeepModel::default(),
            log_every: 10,
            checkpoint_every: 500,
            keep_checkpoints: 2,
            ranks: Communicator::single(),
            directory: None,
            lock: None,
            resume: false,
            resume_anyway: false,
            settings: RunSettings::new(),
            learning_rate: None,
            unit: None,
            stop: None,
            progress: false,
        }
    }
}

impl<B: Backend> FitOptions<B> {
    /// The number of steps, or what is wrong with the options.
    pub(super) fn steps(&self, batches_per_epoch: usize) -> Result<u64> {
        let wrong = |what: &str| Err(TrainError::Options(what.to_owned()));
        if self.accumulate == 0 {
            return wrong("0 batches a step: at least 1 must be accumulated");
        }
        if self.log_every == 0 || self.checkpoint_every == 0 {
            return wrong("0 steps between records or checkpoints: at least 1 is needed");
        }
        if let Some(decay) = self.ema
            && !(0.0..1.0).contains(&decay)
        {
            return wrong(&format!("the moving average's decay is {decay}; it must be at least 0 and less than 1"));
        }
        if self.patience.is_some() && self.evaluate_every == 0 {
            return wrong("early stopping goes by evaluations, and there are none: set `evaluate_every` too");
        }
        if let (Some(lock), Some(directory)) = (&self.lock, &self.directory)
            && lock.directory() != directory
        {
            return wrong(&format!(
                "`lock` is that of {}, and `directory` is {}: take that of the directory",
                lock.directory().display(),
                directory.display()
            ));
        }
        self.length.steps(batches_per_epoch, self.accumulate)
    }

    /// The given settings, and those options that decide what is computed.
    pub(crate) fn all_settings(&self, batches_per_epoch: usize) -> RunSettings {
        let dtype = self.step.compute.map(|dtype| format!("{dtype:?}").to_lowercase());
        let own = RunSettings::new()
            .with("accumulate", self.accumulate)
            .with_option("ema", self.ema)
            .with("loss-scaling", self.loss_scaling)
            .with("dtype", dtype.as_deref().unwrap_or("the model's own"))
            .with("batches-per-epoch", batches_per_epoch)
            .with("keep", self.keep_model);
        self.settings.clone().or(own)
    }
}

impl RunDuration {
    /// The number of steps, of which a schedule may want to know beforehand.
    ///
    /// # Errors
    /// [`TrainError::Options`] where there would be none.
    pub fn steps(self, batches_per_epoch: usize, accumulate: usize) -> Result<u64> {
        let wrong = |what: String| Err(TrainError::Options(what));
        match self {
            Self::Steps(0) => wrong("0 steps: there is nothing to train".into()),
            Self::Steps(steps) => Ok(steps),
            Self::Epochs(epochs) if epochs.is_finite() && epochs > 0.0 => {
                // A rounding error is not a step.
                let steps = epochs * batches_per_epoch as f64 / accumulate.max(1) as f64 - 1e-9;
                Ok((steps.ceil() as u64).max(1))
            }
            Self::Epochs(epochs) => wrong(format!("{epochs} epochs: the number must be greater than 0")),
        }
    }
}

/// Metrics of an evaluation by name, such as `loss`. [`FitOptions::keep_model`] names the one by which models are compared.
pub type Evaluation = BTreeMap<String, f64>;

/// The arrays of a run.
#[derive(Tree, Clone, Debug)]
pub struct TrainState<B: Backend, M, S> {
    /// The model.
    pub model: M,
    /// The optimizer's state.
    pub optimizer: S,
    /// The moving average of the model, f32 where the model has 16 bits.
    pub ema: Option<M>,
    /// The loss scale.
    pub loss_scale: Option<LossScale<B>>,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All steps are made.
    Finished,
    /// The evaluation did not get better any more.
    EarlyStop,
    /// Somebody wanted it; the run can be resumed.
    Interrupted,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Fitted<M> {
    /// The model after the last step.
    pub model: M,
    /// Its moving average, where there is one.
    pub ema: Option<M>,
    /// The model (or its moving average, if there is one) with the best evaluation, the evaluation's step and its value of the metric
    /// that [`FitOptions::keep_model`] names. `None` without evaluations and with [`KeepModel::Last`].
    pub best: Option<(M, u64, f64)>,
    /// The choice of the model that [`into_model`](Self::into_model) returns.
    pub kept: KeepModel,
    /// Loss of that model's evaluation.
    pub held_out_loss: Option<f64>,
    /// Steps made, those before a resume included.
    pub steps: u64,
    /// Steps among them that were left out, as their loss or gradient was not finite; see [`NonFinite`].
    pub skipped: u64,
    /// Seconds of training, all resumes together.
    pub seconds: f64,
    /// Ranks that it ran on, the last time that it resumed.
    pub ranks: usize,
    /// Why it ended.
    pub ended: Ended,
    /// Remarks on how it began, a sentence each: what it went on from, damaged checkpoints that were
    /// passed over. With [`FitOptions::progress`] they were shown already.
    pub remarks: Vec<String>,
}

/// Results of a run without its model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Steps made, those before a resume included.
    pub steps: u64,
    /// Steps among them that were left out; see [`NonFinite`].
    #[serde(rename = "skipped_steps")]
    pub skipped: u64,
    /// Seconds of training, all resumes together.
    pub seconds: f64,
    /// Ranks that it ran on, the last time that it resumed.
    pub ranks: usize,
    /// Why it ended.
    pub ended: Ended,
    /// The choice of the model that was kept.
    pub kept: KeepModel,
    /// Step of the model that was kept, if it has the best evaluation.
    pub best_step: Option<u64>,
    /// Held-out loss of the model that was kept.
    pub held_out_loss: Option<f64>,
}

impl RunSummary {
    /// Rows of a [`summary_table`](crate::log::summary_table): steps, time, the held-out loss in nats per `unit` (without a unit if that is
    /// empty), and the model that was kept.
    pub fn rows(&self, unit: &str) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_owned(), value);
        let mut rows = vec![row("steps", self.steps.to_string()), row("time", duration(self.seconds))];
        if self.ranks > 1 {
            rows.push(row("ranks", self.ranks.to_string()));
        }
        if self.skipped > 0 {
            let skipped = format!("{} steps, whose loss or gradient was not a number", self.skipped);
            rows.push(row("left out", skipped));
        }
        if let Some(loss) = self.held_out_loss {
            let article = if unit.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            let per = if unit.is_empty() { String::new() } else { format!(" nats {article} {unit}") };
            let step = self.best_step.unwrap_or(self.steps);
            rows.push(row("held-out loss", format!("{loss:.4}{per}, at step {step}")));
        }
        if let Some(step) = self.best_step {
            rows.push(row("kept", format!("the model of step {step}, which has {}", self.kept.reason())));
        }
        rows
    }
}

/// A number of seconds, in the units that people use: `12.3 s`, `4m 05s`, `2h 30m`.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
}

impl<M> Fitted<M> {
    /// The results of the run, apart from its model.
    pub fn summary(&self) -> RunSummary {
        let best_step = self.best.as_ref().map(|(_, step, _)| *step);
        let Self { steps, skipped, seconds, ranks, ended, kept, held_out_loss, .. } = *self;
        RunSummary { steps, skipped, seconds, ranks, ended, kept, best_step, held_out_loss }
    }

    /// The model to keep, as [`FitOptions::keep_model`] chooses: the best one, else the moving average, else the last.
    pub fn into_model(self) -> M {
        match (self.best, self.ema) {
            (Some((best, _, _)), _) => best,
            (None, Some(ema)) => ema,
            (None, None) => self.model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_the_best_evaluation() {
        let best = Some(((), 20, 1.5));
        let fitted = Fitted {
            model: (),
            ema: None,
            best,
            kept: KeepModel::default(),
            held_out_loss: Some(1.5),
            steps: 30,
            skipped: 1,
            seconds: 245.0,
            ranks: 2,
            ended: Ended::EarlyStop,
            remarks: vec![],
        };
        let summary = fitted.summary();
        let rows = summary.rows("token").into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        let found = (&*rows[0], &*rows[1], &*rows[2], &*rows[4]);
        assert_eq!(found, ("30", "4m 05s", "2", "1.5000 nats a token, at step 20"));
        assert_eq!(rows[5], "the model of step 20, which has the lowest held-out loss");
        let json = serde_json::to_value(summary).expect("JSON");
        assert_eq!(
            (&json["ended"], &json["best_step"], &json["skipped_steps"], &json["ranks"], &json["kept"]),
            (&"early_stop".into(), &20.into(), &1.into(), &2.into(), &"best:loss".into())
        );
    }
}
