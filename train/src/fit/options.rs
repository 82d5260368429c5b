use grove_backend::Backend;
use grove_distributed::Communicator;
use grove_optim::Schedule;
use grove_tree::Tree;
use std::{collections::BTreeMap, path::PathBuf};

use super::KeepModel;
use crate::{LossScale, Result, RunLock, RunSettings, StepOptions, Stop, TrainError, log::SharedSink};

/// Length of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RunDuration {
    /// Number of steps.
    Steps(u64),
    /// Number of passes over the data, which may be fractional. The last step is complete, so it may use batches of the
    /// next pass.
    Epochs(f64),
}

/// Treatment of a step whose loss or gradient norm is not finite. The check runs on the device and does not delay
/// finite steps. A custom loop has [`apply_if_finite`](grove_optim::apply_if_finite), which sees the gradients only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NonFinite {
    /// Ends the run with [`TrainError::NotFinite`].
    #[default]
    Stop,
    /// Skips the step: parameters, buffers, and the states of the optimizer and the loss scale stay unchanged.
    /// [`Fitted::skipped`](crate::Fitted::skipped) and the logs count such steps.
    Skip {
        /// Number of consecutive such steps that are allowed; one more ends the run.
        max_consecutive: u64,
    },
    /// Passes the step to an optimizer that treats it, such as `apply_if_finite`; only buffers stay unchanged. Such steps
    /// are counted as with `Skip`.
    Optimizer {
        /// Number of consecutive such steps that are allowed; one more ends the run.
        max_consecutive: u64,
    },
}

impl NonFinite {
    /// Number of consecutive non-finite steps that do not end the run.
    pub(super) fn max_consecutive(self) -> u64 {
        match self {
            Self::Stop => 0,
            Self::Skip { max_consecutive } | Self::Optimizer { max_consecutive } => max_consecutive,
        }
    }
}

/// Options of [`fit`](crate::fit). [`Default`] is a run of one epoch that writes nothing to disk.
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
    /// Number of gradient-accumulation batches per step. Default: 1. The mean weights each batch by its
    /// [`Outcome::weight`](crate::Outcome::weight), which [`multi_steps`](grove_optim::multi_steps()), the accumulation of
    /// custom loops, does not know.
    pub accumulate: usize,
    /// Trainable leaves and compute dtype.
    pub step: StepOptions<B>,
    /// If true, the loss is scaled, which f16 needs. Default: false.
    pub loss_scaling: bool,
    /// Treatment of a step whose loss or gradient is not finite. Default: ends the run.
    pub non_finite: NonFinite,
    /// Decay of an exponential moving average of the model. Evaluations then use the average. Default: no average.
    pub ema: Option<f64>,
    /// Number of steps between evaluations; the last step is evaluated too. Default: 0, no evaluations.
    pub evaluate_every: u64,
    /// Number of consecutive evaluations without improvement after which the run ends. Default: never. `keep_model`
    /// names the metric. A value that is not finite does not count as an improvement.
    pub patience: Option<u64>,
    /// Choice of the model that [`Fitted::into_model`](crate::Fitted::into_model) returns: the one with the best
    /// evaluation, or the last. Default: the one with the lowest `loss`. Metrics other than `loss` must be in every
    /// [`Evaluation`].
    pub keep_model: KeepModel,
    /// Number of steps between log records. Default: 10.
    pub log_every: u64,
    /// Number of steps between checkpoints. Default: 500. The run also writes one when it ends or is stopped.
    pub checkpoint_every: u64,
    /// Number of checkpoints to keep. Default: 2.
    pub keep_checkpoints: usize,
    /// Ranks that train together (data parallelism). Default: one. Each rank computes the gradients of its part of
    /// every batch. Only rank 0 writes, so the directory need not be shared. A failed collective ends the job with a
    /// message and status 1; see [`Communicator::end_job`].
    pub ranks: Communicator,
    /// Directory of checkpoints and logs. Default: none. The run writes `checkpoints/`, `best/`, `metrics.jsonl`,
    /// `tensorboard/`, `loss.svg` and `run.lock`.
    pub directory: Option<PathBuf>,
    /// [`RunLock`] of the directory, if the program holds it already. Default: the run acquires the lock.
    pub lock: Option<RunLock>,
    /// If true, resumes the run in the directory, if there is one; if false, an existing run is an error. Default:
    /// false.
    pub resume: bool,
    /// If true, resumes a run despite changed settings, key or data. Default: false.
    pub resume_anyway: bool,
    /// Settings of the run besides these options: seed, data, learning rate, model sizes. They are saved in
    /// checkpoints, and a resumed run must have the same. Default: none.
    pub settings: RunSettings,
    /// Learning-rate schedule, for the logs only.
    pub learning_rate: Option<Schedule>,
    /// Unit of the throughput in the logs and the number of units per batch, such as `("tokens", 4096)`.
    pub unit: Option<(&'static str, u64)>,
    /// Sinks of log records and evaluations in addition to those of the directory: callbacks by
    /// [`on_record`](crate::log::on_record), or a sink of your own, such as a client of a tracking service. Default: none. A
    /// callback ends the run by [`stop`](Self::stop). With several ranks, only rank 0 writes to them.
    pub sinks: Vec<SharedSink>,
    /// Flag that ends the run when it becomes true; see [`stop_on_interrupt`](crate::stop_on_interrupt).
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
            sinks: Vec::new(),
            stop: None,
            progress: false,
        }
    }
}

impl<B: Backend> FitOptions<B> {
    /// Checks the options and returns the number of steps.
    pub(super) fn steps(&self, batches_per_epoch: usize) -> Result<u64> {
        let invalid = |what: &str| Err(TrainError::Options(what.to_owned()));
        if self.accumulate == 0 {
            return invalid("0 batches a step: at least 1 must be accumulated");
        }
        if self.log_every == 0 || self.checkpoint_every == 0 {
            return invalid("0 steps between records or checkpoints: at least 1 is needed");
        }
        if let Some(decay) = self.ema
            && !(0.0..1.0).contains(&decay)
        {
            return invalid(&format!("the moving average's decay is {decay}; it must be at least 0 and less than 1"));
        }
        if self.patience.is_some() && self.evaluate_every == 0 {
            return invalid("early stopping needs evaluations: set `evaluate_every`");
        }
        if let (Some(lock), Some(directory)) = (&self.lock, &self.directory)
            && lock.directory() != directory
        {
            return invalid(&format!(
                "`lock` belongs to {}, but `directory` is {}: use the lock of the directory",
                lock.directory().display(),
                directory.display()
            ));
        }
        self.length.steps(batches_per_epoch, self.accumulate)
    }

    /// Returns the given settings and the options that influence the computation.
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
    /// Returns the number of steps, for example for a learning-rate schedule.
    ///
    /// # Errors
    /// [`TrainError::Options`] if the number of steps or epochs is not positive.
    pub fn steps(self, batches_per_epoch: usize, accumulate: usize) -> Result<u64> {
        let invalid = |what: String| Err(TrainError::Options(what));
        match self {
            Self::Steps(0) => invalid("0 steps: there is nothing to train".into()),
            Self::Steps(steps) => Ok(steps),
            Self::Epochs(epochs) if epochs.is_finite() && epochs > 0.0 => {
                // A rounding error must not add a step.
                let steps = epochs * batches_per_epoch as f64 / accumulate.max(1) as f64 - 1e-9;
                Ok((steps.ceil() as u64).max(1))
            }
            Self::Epochs(epochs) => invalid(format!("{epochs} epochs: the number must be greater than 0")),
        }
    }
}

/// Metrics of an evaluation by name, such as `loss`. [`FitOptions::keep_model`] names the metric that compares models.
pub type Evaluation = BTreeMap<String, f64>;

/// State of a run that consists of arrays.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::{GradientTransformation, Sgd, sgd};
/// use grove_train::TrainState;
/// use grove_tree::{Array, paths};
/// # type B = burn_flex::Flex;
/// let model = Array::<B, 1>::new(Tensor::from_floats([0.0, 1.0], &Default::default()));
/// let optimizer = sgd(0.1, Sgd::default().momentum(0.9));
/// let state = TrainState::<B, _, _> { optimizer: optimizer.init(&model), model, ema: None, loss_scale: None };
/// println!("{:?}", paths(&state)); // a tree: a checkpoint has an array for each path
/// ```
#[derive(Tree, Clone, Debug)]
pub struct TrainState<B: Backend, M, S> {
    /// Model.
    pub model: M,
    /// Optimizer state.
    pub optimizer: S,
    /// Moving average of the model; f32 for 16-bit leaves.
    pub ema: Option<M>,
    /// Loss scale.
    pub loss_scale: Option<LossScale<B>>,
}
