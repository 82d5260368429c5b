use grove_backend::Backend;
use grove_optim::Schedule;
use grove_tree::Tree;
use std::{collections::BTreeMap, path::PathBuf};

use crate::{LossScale, Result, StepOptions, Stop, TrainError};

/// How long to train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// So many steps.
    Steps(u64),
    /// So many passes over the data; parts of one are possible. The last step is a whole one, so it may take batches
    /// of the next pass.
    Epochs(f64),
}

/// How [`fit`](crate::fit) runs. [`Default`] is a short run that leaves nothing on the disk.
#[derive(Clone)]
pub struct FitOptions<B: Backend> {
    /// How long: 1 epoch.
    pub length: Length,
    /// Batches whose mean gradient makes one step: 1.
    pub accumulate: usize,
    /// What is trained, and in which type the loss is computed.
    pub step: StepOptions<B>,
    /// Whether to scale the loss, which f16 needs: no.
    pub loss_scaling: bool,
    /// Decay of an exponential moving average of the model, which is then what is evaluated: none.
    pub ema: Option<f64>,
    /// Steps from one evaluation to the next; there is one at the end too. 0, the default, leaves them out.
    pub evaluate_every: u64,
    /// Evaluations without a better loss after which to end: never. A loss that is not finite is not better.
    pub patience: Option<u64>,
    /// Steps from one record in the logs to the next: 10.
    pub log_every: u64,
    /// Steps from one checkpoint to the next: 500. There is one at the end, and one where the run is stopped, too.
    pub checkpoint_every: u64,
    /// How many checkpoints to keep: 2.
    pub keep: usize,
    /// Where checkpoints and logs go: nowhere. The directory gets `checkpoints/`, `best/`, `metrics.jsonl`,
    /// `tensorboard/` and `loss.svg`.
    pub directory: Option<PathBuf>,
    /// Whether to go on with the run in that directory, if there is one; else it is an error if there is: no.
    pub resume: bool,
    /// What the learning rate follows, for the logs only.
    pub learning_rate: Option<Schedule>,
    /// What is counted for the rate in the logs, and how many of it a batch has: ("tokens", 4096), say.
    pub unit: Option<(&'static str, u64)>,
    /// Ends the run when it becomes true; see [`stop_on_interrupt`](crate::stop_on_interrupt).
    pub stop: Option<Stop>,
    /// Whether to show a progress bar on standard error: no.
    pub progress: bool,
}

impl<B: Backend> Default for FitOptions<B> {
    fn default() -> Self {
        Self {
            length: Length::Epochs(1.0),
            accumulate: 1,
            step: StepOptions::default(),
            loss_scaling: false,
            ema: None,
            evaluate_every: 0,
            patience: None,
            log_every: 10,
            checkpoint_every: 500,
            keep: 2,
            directory: None,
            resume: false,
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
        self.length.steps(batches_per_epoch, self.accumulate)
    }
}

impl Length {
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

/// What an evaluation found: `loss`, by which models are compared, and other numbers.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// All steps are made.
    Finished,
    /// The evaluation did not get better any more.
    EarlyStop,
    /// Somebody wanted it; the run can be resumed.
    Interrupted,
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Fitted<M> {
    /// The model after the last step.
    pub model: M,
    /// Its moving average, where there is one.
    pub ema: Option<M>,
    /// The model (its average, where there is one) with the best evaluation, that evaluation's step and loss.
    pub best: Option<(M, u64, f64)>,
    /// Steps made, those before a resume included.
    pub steps: u64,
    /// Seconds of training, all resumes together.
    pub seconds: f64,
    /// Why it ended.
    pub ended: Ended,
}

impl<M> Fitted<M> {
    /// The model to keep: the best one, else the average, else the last.
    pub fn into_model(self) -> M {
        match (self.best, self.ema) {
            (Some((best, _, _)), _) => best,
            (None, Some(ema)) => ema,
            (None, None) => self.model,
        }
    }
}
