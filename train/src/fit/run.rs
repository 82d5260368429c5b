use grove_backend::{Autodiff, Backend};
use grove_optim::{GradientTransformation, all_finite, global_norm};
use grove_tree::{Array, Key, Tree, filter};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::{
    Ended, Evaluation, FitOptions, Fitted, KeepModel, TrainState, begin::RunSetup, best::Best, logs::Logs,
    pending::Pending,
};
use crate::{
    CheckpointManager, Outcome, Result, RunLock, RunProgress, TrainError,
    arrays::scalar,
    data::{Data, Parts, Position, prefetch},
    ema::ema_model,
    gradients::{GradientFn, RankPart, gradients},
    ranks::{Ranks, only_present},
};

/// Trains a model, with evaluations, checkpoints and logs, until all steps are done, evaluations stop improving, or the
/// run is stopped.
///
/// The state of a run is its arrays and its position in the data. The key of each step is `key.fold_in(step)`, and the
/// order of the data is a function of the data's own key and the epoch. On a CPU, a run that is killed and resumed is
/// therefore bitwise identical to an uninterrupted one.
///
/// `loss_fn` is as in [`train_step`](crate::train_step). `evaluate` takes the model, or its moving average if there is
/// one, and returns metrics by name. Early stopping and the choice of the best model use the metric of
/// [`FitOptions::keep_model`], by default `loss`.
///
/// With several [`ranks`](FitOptions::ranks), each rank takes its part of every batch. Apart from rounding and random
/// numbers, the steps equal those of a single rank on the whole batch. The key of a step is folded with the rank. Batch
/// normalisation computes its statistics over all ranks. The initial model and state are those of rank 0, and only rank
/// 0 reads and writes the directory. Every rank evaluates; the evaluation of rank 0 is used. A run can be resumed with
/// a different number of ranks. On devices that execute synchronously, gradients are all-reduced during the backward
/// pass. A sharded optimizer state ([`zero1`](grove_optim::zero1()) of gradients that are
/// [reduced](grove_optim::Zero1::of_reduced)) stays sharded; checkpoints contain the whole state.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Autodiff;
/// use grove_optim::{Sgd, sgd};
/// use grove_train::{FitOptions, RunDuration, data::Examples, fit};
/// use grove_tree::{Array, Key};
/// use std::sync::Arc;
/// # type B = burn_flex::Flex;
/// let slope = Array::<B, 1>::new(Tensor::from_floats([0.0], &Default::default()));
/// let points = vec![(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)];
/// let data = Arc::new(Examples::new(points, 3)?);
/// let loss = |slope: Array<Autodiff<B>, 1>, batch: &Vec<(f64, f64)>, _key: Key| {
///     let losses = batch.iter().map(|(x, y)| (slope.val() * *x - *y).square());
///     losses.reduce(|sum, loss| sum + loss).expect("a point") / 3.0
/// };
/// let options = FitOptions { length: RunDuration::Steps(100), ..FitOptions::default() };
/// let optimizer = sgd(0.05, Sgd::default());
/// let fitted = fit(slope, &optimizer, &data, loss, |_| Ok(Default::default()), Key::new(0), &options)?;
/// assert!((fitted.model.val().into_scalar() - 2.0).abs() < 1e-2);
/// # Ok::<(), grove_train::TrainError>(())
/// ```
///
/// # Errors
/// See [`TrainError`]. An error leaves the newest checkpoint intact.
pub fn fit<B, M, T, D, O>(
    model: M,
    optimizer: &T,
    data: &Arc<D>,
    loss_fn: impl Fn(M::On<Autodiff<B>>, &D::Batch, Key) -> O,
    mut evaluate: impl FnMut(&M) -> Result<Evaluation>,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    D: Data,
    O: Into<Outcome<B, M>>,
{
    let gradients = |model: &M, batch: &D::Batch, key, factor: Option<&Array<B, 1>>, part: &RankPart| {
        gradients(model, &loss_fn, batch, key, &options.step, factor, part)
    };
    fit_by(model, optimizer, data, &gradients, &mut evaluate, key, options)
}

/// [`fit`] with a function that computes gradients.
pub(super) fn fit_by<B, M, T, D>(
    model: M,
    optimizer: &T,
    data: &Arc<D>,
    gradients: &GradientFn<'_, B, M, D::Batch>,
    evaluate: &mut dyn FnMut(&M) -> Result<Evaluation>,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    D: Data,
{
    let batches_per_epoch = data.batches_per_epoch();
    let steps = options.steps(batches_per_epoch)?;
    let options = &match options.ranks.rank() {
        0 => options.clone(),
        _ => FitOptions { directory: None, lock: None, progress: false, sinks: Vec::new(), ..options.clone() },
    };
    let ranks = Ranks::new(&options.ranks);
    let model = ranks.begin(model, (steps, batches_per_epoch), key, options);
    // Arrays of a sharded optimizer state that this rank owns.
    let mut own = None;
    let init = |trained: &M| {
        let state = optimizer.init(trained);
        if !ranks.is_sharded(&state) {
            return state;
        }
        own = Some(state.clone());
        ranks.whole(state, trained)
    };
    let RunSetup { state, progressed, checkpoints, newest, best, remarks, lock } =
        RunSetup::new(model, init, key, batches_per_epoch, options)?;
    let (mut state, progressed) = ranks.same_state(state, progressed)?;
    let is_sharded = own.is_some();
    if let Some(own) = own {
        state.optimizer = only_present(state.optimizer, &own);
    }
    let run = Run {
        optimizer,
        data,
        gradients,
        evaluate,
        options,
        ranks,
        steps,
        checkpoints,
        newest,
        best,
        logs: Logs::open(options, steps, &progressed, &remarks)?,
        pending: None,
        stopping: false,
        is_sharded,
        begun: Instant::now(),
        before: progressed.seconds,
        progressed,
        remarks,
        _lock: lock,
    };
    run.train(state)
}

/// A run in progress. Its arrays are passed by value and not stored here: the optimizer then has the only handles and
/// can reuse their memory.
pub(super) struct Run<'a, B: Backend, M: Tree<B>, T, D: Data> {
    pub(super) optimizer: &'a T,
    data: &'a Arc<D>,
    pub(super) gradients: &'a GradientFn<'a, B, M, D::Batch>,
    evaluate: &'a mut dyn FnMut(&M) -> Result<Evaluation>,
    pub(super) options: &'a FitOptions<B>,
    pub(super) ranks: Ranks,
    steps: u64,
    pub(super) progressed: RunProgress,
    checkpoints: Option<CheckpointManager>,
    /// Step and path of the newest checkpoint.
    newest: Option<(u64, PathBuf)>,
    best: Best<M>,
    pub(super) logs: Logs,
    /// Metrics of the last step, which may not be computed yet.
    pub(super) pending: Option<Pending>,
    /// True if one of several ranks was asked to stop.
    pub(super) stopping: bool,
    /// True if the optimizer state is sharded.
    is_sharded: bool,
    pub(super) begun: Instant,
    /// Training time in seconds before this process.
    pub(super) before: f64,
    remarks: Vec<String>,
    /// Dropped last, after all writes.
    _lock: Option<RunLock>,
}

/// The arrays of a run.
pub(super) type State<B, M, T> = TrainState<B, M, <T as GradientTransformation<B, M>>::State>;

impl<B, M, T, D> Run<'_, B, M, T, D>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    D: Data,
{
    fn train(mut self, mut state: State<B, M, T>) -> Result<Fitted<M>> {
        let parts = Arc::new(Parts::new(self.data.clone(), self.ranks.communicator()));
        let mut batches = prefetch(parts, self.progressed.position, 2);
        let mut ended = Ended::Finished;
        while self.progressed.step < self.steps {
            if self.is_to_stop() {
                ended = Ended::Interrupted;
                break;
            }
            if self.options.patience.is_some_and(|patience| self.progressed.stale >= patience.max(1)) {
                ended = Ended::EarlyStop;
                break;
            }
            state = self.step(state, &mut batches)?;
            self.after_step(&state)?;
        }
        self.read_pending_metrics()?;
        if ended == Ended::EarlyStop {
            self.record()?;
        }
        self.save(&state)?;
        self.logs.flush()?;
        let best = self.ranks.same_model(self.best.into_model(), &state.model).map(|model| self.ranks.end(model));
        Ok(Fitted {
            best: best.zip(self.progressed.best).map(|(model, (step, value))| (model, step, value)),
            kept: self.options.keep_model,
            held_out_loss: self.progressed.held_out_loss,
            ema: state.ema.map(|average| self.ranks.end(ema_model(average, &state.model))),
            model: self.ranks.end(state.model),
            steps: self.progressed.step,
            skipped: self.progressed.skipped,
            seconds: self.progressed.seconds,
            ranks: self.options.ranks.size(),
            ended,
            remarks: self.remarks,
        })
    }

    /// True if the run ends before the next step. Several ranks stop together, after the step in which one of them is
    /// asked to.
    fn is_to_stop(&self) -> bool {
        if self.ranks.is_shared() { self.stopping } else { self.stop_requested() }
    }

    pub(super) fn stop_requested(&self) -> bool {
        self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    pub(super) fn not_finite(&self, what: &'static str, value: f64, step: u64) -> TrainError {
        let kept = self.newest.as_ref().map(|(_, path)| path.clone());
        TrainError::NotFinite { what, value, step, skipped: self.progressed.skipped_in_a_row, kept }
    }

    /// Runs the evaluation, checkpoint and log record that are due after a step.
    fn after_step(&mut self, state: &State<B, M, T>) -> Result<()> {
        let (step, every) = (self.progressed.step, self.options.evaluate_every);
        let last = step == self.steps;
        if step.is_multiple_of(self.options.log_every) || last {
            self.read_pending_metrics()?;
            self.record()?;
        }
        if every > 0 && (step.is_multiple_of(every) || last) {
            self.read_pending_metrics()?;
            self.evaluate(state)?;
        }
        if step.is_multiple_of(self.options.checkpoint_every) {
            self.read_pending_metrics()?;
            self.save(state)?;
        }
        Ok(())
    }

    /// Number of passes over the data so far.
    fn epoch(&self) -> f64 {
        let Position { epoch, batch } = self.progressed.position;
        epoch as f64 + batch as f64 / self.data.batches_per_epoch().max(1) as f64
    }

    fn record(&mut self) -> Result<()> {
        let epoch = self.epoch();
        self.logs.record(&mut self.progressed, epoch)
    }

    fn evaluate(&mut self, state: &State<B, M, T>) -> Result<()> {
        let begun = Instant::now();
        let average = state.ema.clone().map(|average| ema_model(average, &state.model));
        let model = average.as_ref().unwrap_or(&state.model);
        let evaluation = self.ranks.same_evaluation((self.evaluate)(model)?);
        let keep = self.options.keep_model;
        let (loss, value) = (evaluation.get("loss").copied(), evaluation.get(keep.metric()).copied());
        if value.is_none() && (self.options.patience.is_some() || keep.metric() != "loss") {
            let names: Vec<&str> = evaluation.keys().map(String::as_str).collect();
            let given = if names.is_empty() { "nothing".into() } else { format!("only {}", names.join(", ")) };
            let user = if self.options.patience.is_some() { "`patience`" } else { "`keep_model`" };
            return Err(TrainError::Options(format!(
                "{user} compares the `{}` of evaluations, but this evaluation has {given}: name one of its metrics in \
                 `keep_model`",
                keep.metric()
            )));
        }
        self.logs.evaluated(&self.progressed, self.epoch(), evaluation)?;
        let is_better = value.is_some_and(|value| keep.is_better(value, self.progressed.best.map(|(_, best)| best)));
        if is_better {
            self.progressed.best = value.map(|value| (self.progressed.step, value));
            self.progressed.stale = 0;
        } else if value.is_some() {
            self.progressed.stale += 1;
        }
        if is_better || keep == KeepModel::Last {
            self.progressed.held_out_loss = loss;
        }
        if is_better && keep != KeepModel::Last {
            self.best.replace(model, &self.progressed)?;
        }
        self.logs.pause(begun.elapsed());
        Ok(())
    }

    /// Writes a checkpoint, unless the newest one is of this step.
    fn save(&mut self, state: &State<B, M, T>) -> Result<()> {
        let step = self.progressed.step;
        // Only rank 0 knows whether it has this checkpoint already, so all ranks gather.
        let gathered = self.is_sharded.then(|| {
            let optimizer = self.ranks.whole(state.optimizer.clone(), &state.model);
            TrainState { optimizer, ..state.clone() }
        });
        if self.newest.as_ref().is_some_and(|(newest, _)| *newest == step) {
            return Ok(());
        }
        let begun = Instant::now();
        self.check(state)?;
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        // Flush the logs first: a checkpoint implies that all records up to its step are on disk.
        self.logs.flush()?;
        let path = checkpoints.save(gathered.as_ref().unwrap_or(state), &self.progressed)?;
        self.newest = Some((step, path));
        self.best.checkpointed(&self.progressed)?;
        self.logs.pause(begun.elapsed());
        Ok(())
    }

    /// Returns an error if parameters are not finite. The loss and gradient of a step do not show whether its update
    /// was finite.
    fn check(&self, state: &State<B, M, T>) -> Result<()> {
        let trained = filter(state.model.clone(), &self.options.step.trainable);
        let finite = all_finite(&trained).is_none_or(|finite| finite.into_data().iter::<bool>().all(|finite| finite));
        if finite {
            return Ok(());
        }
        let norm = global_norm(&trained).map_or(f64::NAN, |norm| scalar(norm.into_data()));
        Err(self.not_finite("norm of the parameters", norm, self.progressed.step))
    }
}
