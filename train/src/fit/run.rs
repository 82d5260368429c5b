use burn::tensor::TensorData;
use grove_backend::{Autodiff, Backend, PendingRead, ops};
use grove_distributed::{Communicator, all_reduce_sum, broadcast};
use grove_layers::sync_batch_norm;
use grove_optim::{GradientTransformation, all_finite, global_norm, select};
use grove_tree::{Array, Key, Tree, combine, filter, is_buffer, partition};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::{Ended, Evaluation, FitOptions, Fitted, NonFinite, TrainState, begin::RunSetup, best::Best, logs::Logs};
use crate::{
    CheckpointManager, LossScale, Metrics, Outcome, Result, RunLock, RunProgress, TrainError,
    accumulate::Accumulated,
    data::{Data, DataError, Part, Parts, Position, Prefetch, prefetch},
    ema::{ema_decay, ema_model, ema_step},
    gradients::{Gradients, RankPart, gradients},
    log::{GRAD_NORM, TRAIN_LOSS},
    ranks::{agree, is_divided, only_present, or_end, reduce_measured, same_evaluation, same_model, same_state, whole},
};

/// Trains a model: steps, evaluations, checkpoints and logs, until the run is over or somebody stops it.
///
/// The state of a run is its arrays and its place in the data; each step's key is `key.fold_in(step)`, and the order
/// of the data is a function of the data's own key and the epoch. So a run that was killed and resumed gives, on a
/// CPU, the same bits as one that was not.
///
/// `loss_fn` is that of [`train_step`](crate::train_step). `evaluate` gets the model, or its moving average where
/// there is one, and gives named numbers; `loss` among them is what early stopping and the best model go by.
///
/// On several [`ranks`](FitOptions::ranks) each takes its part of every batch, and the steps are those of one rank with the
/// whole batch, within rounding, but for random numbers: the key of a step is folded with the rank. Batch normalisation
/// takes its statistics over all ranks. The model and the state are those of rank 0, which alone reads and writes the
/// directory; every rank evaluates, and what rank 0 finds counts. A run can be resumed with another number of ranks.
/// Gradients are summed while the backward pass still runs, where the device computes as the host does. The state of an optimizer that is
/// divided ([`zero1`](grove_distributed::zero1()) of gradients that are [reduced](grove_distributed::Zero1::of_reduced))
/// stays so; a checkpoint holds all of it.
///
/// # Errors
/// See [`TrainError`]. After an error the newest checkpoint is as it was.
pub fn fit<B, M, T, D, O>(
    model: M,
    optimizer: &T,
    data: &Arc<D>,
    loss_fn: impl Fn(M::On<Autodiff<B>>, &D::Batch, Key) -> O,
    evaluate: impl FnMut(&M) -> Result<Evaluation>,
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
    let gradients = |model: &M, batch: &D::Batch, key, factor: Option<&Array<B, 1>>, part: Option<RankPart<'_>>| {
        gradients(model, &loss_fn, batch, key, &options.step, factor, part)
    };
    fit_by(model, optimizer, data, gradients, evaluate, key, options)
}

/// [`fit`] with a function that gives the gradients of a batch, of the loss times a factor where there is one.
pub(super) fn fit_by<B, M, T, D>(
    model: M,
    optimizer: &T,
    data: &Arc<D>,
    gradients: impl Fn(&M, &D::Batch, Key, Option<&Array<B, 1>>, Option<RankPart<'_>>) -> Gradients<B, M>,
    evaluate: impl FnMut(&M) -> Result<Evaluation>,
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
    let ranks = &options.ranks;
    let silent;
    let options = match ranks.rank() {
        0 => options,
        _ => {
            silent = FitOptions { directory: None, lock: None, progress: false, ..options.clone() };
            &silent
        }
    };
    let model = match ranks.is_shared() {
        true => {
            agree(&model, (steps, batches_per_epoch), key.words(), options);
            sync_batch_norm(model, ranks)
        }
        false => model,
    };
    // The arrays of the state that are this rank's own.
    let mut own = None;
    let init = |trained: &M| {
        let state = optimizer.init(trained);
        if !ranks.is_shared() || !is_divided(&state, ranks) {
            return state;
        }
        own = Some(state.clone());
        whole(state, trained, ranks)
    };
    let RunSetup { mut state, mut progressed, checkpoints, kept, best, remarks, lock } =
        RunSetup::new(model, init, key, batches_per_epoch, options)?;
    if ranks.is_shared() {
        let failed = |error: serde_json::Error| TrainError::Options(format!("the progress of the run: {error}"));
        (state, progressed) = same_state(state, progressed, ranks).map_err(failed)?;
    }
    let is_divided = own.is_some();
    if let Some(own) = own {
        state.optimizer = only_present(state.optimizer, &own);
    }
    let run = Run {
        optimizer,
        gradients,
        evaluate,
        options,
        steps,
        batches_per_epoch,
        checkpoints,
        kept,
        best,
        logs: Logs::open(options, steps, &progressed, &remarks)?,
        pending: None,
        stopping: false,
        is_divided,
        begun: Instant::now(),
        before: progressed.seconds,
        progressed,
        remarks,
        _lock: lock,
    };
    run.train(state, data)
}

/// A run that is going on. Its arrays are not here but handed on, so that the optimizer gets the only handles and can
/// use their memory again.
struct Run<'a, B: Backend, M, T, L, E> {
    optimizer: &'a T,
    gradients: L,
    evaluate: E,
    options: &'a FitOptions<B>,
    steps: u64,
    batches_per_epoch: usize,
    progressed: RunProgress,
    checkpoints: Option<CheckpointManager>,
    /// The newest checkpoint.
    kept: Option<(u64, PathBuf)>,
    best: Best<M>,
    logs: Logs,
    /// The last step's metrics, which may not be computed yet.
    pending: Option<Pending>,
    /// True if a rank of several is to stop.
    stopping: bool,
    /// True if the optimizer's state is divided among the ranks.
    is_divided: bool,
    begun: Instant,
    /// Seconds of training before this process.
    before: f64,
    remarks: Vec<String>,
    /// Dropped last, when nothing is written any more.
    _lock: Option<RunLock>,
}

/// Metrics of a step, on their way from the device.
struct Pending {
    /// From 1.
    step: u64,
    loss: PendingRead,
    grad_norm: PendingRead,
    others: Vec<(String, PendingRead)>,
    /// The factor of the loss.
    factor: Option<PendingRead>,
}

impl Pending {
    /// Starts to read them, behind what is queued so far.
    fn start<B: Backend>(step: u64, metrics: Metrics<B>, factor: Option<Array<B, 1>>) -> Self {
        let Metrics { loss, grad_norm, others } = metrics;
        let start = |value: Array<B, 1>| ops::start_read(value.val());
        Self {
            step,
            loss: start(loss),
            grad_norm: start(grad_norm),
            others: others.into_iter().map(|(name, value)| (name, start(value))).collect(),
            factor: factor.map(start),
        }
    }
}

/// The arrays of a run.
type State<B, M, T> = TrainState<B, M, <T as GradientTransformation<B, M>>::State>;

impl<B, M, T, L, E> Run<'_, B, M, T, L, E>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    E: FnMut(&M) -> Result<Evaluation>,
{
    fn train<D: Data>(mut self, mut state: State<B, M, T>, data: &Arc<D>) -> Result<Fitted<M>>
    where
        L: Fn(&M, &D::Batch, Key, Option<&Array<B, 1>>, Option<RankPart<'_>>) -> Gradients<B, M>,
    {
        let ranks = self.options.ranks.clone();
        let parts = Arc::new(Parts::new(data.clone(), &ranks));
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
        let best = match ranks.is_shared() {
            true => same_model(self.best.into_model(), &state.model, &ranks),
            false => self.best.into_model(),
        };
        let alone = |model: M| if ranks.is_shared() { sync_batch_norm(model, &Communicator::single()) } else { model };
        Ok(Fitted {
            best: best.map(alone).zip(self.progressed.best).map(|(model, (step, loss))| (model, step, loss)),
            ema: state.ema.map(|average| alone(ema_model(average, &state.model))),
            model: alone(state.model),
            steps: self.progressed.step,
            skipped: self.progressed.skipped,
            seconds: self.progressed.seconds,
            ended,
            remarks: self.remarks,
        })
    }

    /// True if the run ends here. Several ranks stop together, after the step in which one of them is told to.
    fn is_to_stop(&self) -> bool {
        if self.options.ranks.is_shared() { self.stopping } else { self.told_to_stop() }
    }

    fn told_to_stop(&self) -> bool {
        self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// One step of the optimizer.
    fn step<D: Data>(&mut self, state: State<B, M, T>, batches: &mut Prefetch<Parts<D>>) -> Result<State<B, M, T>>
    where
        L: Fn(&M, &D::Batch, Key, Option<&Array<B, 1>>, Option<RankPart<'_>>) -> Gradients<B, M>,
    {
        let ranks = self.options.ranks.is_shared().then_some(&self.options.ranks);
        let step = self.progressed.step;
        let key = Key::from_words(self.progressed.key).fold_in(step as u32);
        let key = ranks.map_or(key, |ranks| key.fold_in(ranks.rank() as u32));
        let TrainState { mut model, optimizer: mut state, ema, mut loss_scale } = state;
        let count = self.options.accumulate;
        let mut batch_sums = Accumulated::new();
        // A batch that is not finite leaves its marks in running statistics before anybody looks.
        let skips = self.options.non_finite != NonFinite::Stop;
        let untouched = skips.then(|| model.clone());
        let (mut has_successor, mut sums) = (false, None);
        for i in 0..count {
            // The iterator is endless, unless it ends with an error.
            let epoch = self.progressed.position.epoch;
            let (position, Part { batch, examples }) = batches.next().ok_or(DataError::NoBatches { epoch })??;
            self.progressed.position = position;
            let key = if count == 1 { key } else { key.fold_in(i as u32) };
            let factor = loss_scale.as_ref().map(|scale| &scale.factor);
            let part = ranks.map(|ranks| RankPart { ranks, examples, whole_step: count == 1 });
            let Gradients { grads, successor, measured, weight, sums: early } =
                (self.gradients)(&model, &batch, key, factor, part);
            sums = early;
            has_successor |= successor.is_some();
            model = successor.unwrap_or(model);
            batch_sums.add(grads, measured, weight);
        }
        let unscale = |grads| {
            let grads = match &loss_scale {
                Some(scale) => scale.unscale(grads),
                None => grads,
            };
            // Each rank has its share of the mean.
            match (ranks, &sums) {
                (Some(ranks), Some(sums)) => or_end(sums.finish(grads), ranks),
                (Some(ranks), None) => or_end(all_reduce_sum(grads, ranks), ranks),
                (None, _) => grads,
            }
        };
        let Some((grads, mut metrics)) = batch_sums.finish(unscale) else {
            return Err(TrainError::Options("0 batches a step: at least 1 must be accumulated".into()));
        };
        if let Some(ranks) = ranks {
            let (stop, Metrics { loss, grad_norm, others }) = (self.told_to_stop(), metrics);
            let (loss, others, stopping) = reduce_measured(loss, others, stop, ranks);
            (metrics, self.stopping) = (Metrics { loss, grad_norm, others }, stopping);
            // Buffers that the ranks do not make the same themselves.
            if has_successor {
                let (params, buffers) = partition(model, &!is_buffer());
                let buffers = or_end(broadcast(buffers, ranks), ranks);
                model = combine(params, buffers).expect("the parts of one tree");
            }
        }
        let factor = loss_scale.as_ref().map(|scale| scale.factor.clone());
        // The same two numbers that `read_pending_metrics` reads a step later.
        let good = skips.then(|| all_finite(&(metrics.loss.clone(), metrics.grad_norm.clone()))).flatten();
        if let (Some(good), Some(untouched), true) = (&good, untouched, has_successor) {
            model = select(good, model, untouched);
        }
        let finite = loss_scale.as_ref().and_then(|_| all_finite(&grads));
        let taken = match (self.options.non_finite, finite.clone(), good) {
            (NonFinite::Skip { .. }, Some(finite), Some(good)) => Some(finite.bool_and(good)),
            (NonFinite::Skip { .. }, None, good) => good,
            (_, finite, _) => finite,
        };
        let before = taken.as_ref().map(|_| (model.clone(), state.clone()));
        (model, state) = self.optimizer.step(grads, state, model);
        if let (Some(taken), Some(before)) = (taken, before) {
            (model, state) = (select(&taken, model, before.0), select(&taken, state, before.1));
        }
        if let Some(finite) = finite {
            loss_scale = loss_scale.map(|scale| scale.adjusted(finite));
        }
        let ema = match (ema, self.options.ema) {
            (Some(ema), Some(decay)) => Some(ema_step(ema, &model, ema_decay(decay, step))),
            (ema, _) => ema,
        };
        // The step before is waited for only now, when this one is queued; its own reads are queued behind it and before the
        // next one.
        let pending = Pending::start(step + 1, metrics, factor);
        self.read_pending_metrics()?;
        self.pending = Some(pending);
        self.progressed.step += 1;
        self.progressed.seconds = self.before + self.begun.elapsed().as_secs_f64();
        Ok(TrainState { model, optimizer: state, ema, loss_scale })
    }

    /// Waits for what the last step measured. Where it is not finite the step was left out, or the run ends.
    fn read_pending_metrics(&mut self) -> Result<()> {
        let Some(Pending { step, loss, grad_norm, others, factor }) = self.pending.take() else { return Ok(()) };
        let (loss, grad_norm) = (first(&loss.wait()), first(&grad_norm.wait()));
        if !loss.is_finite() {
            return self.left_out("loss", loss, step);
        }
        let mut values = vec![(TRAIN_LOSS.to_owned(), loss)];
        if grad_norm.is_finite() {
            values.push((GRAD_NORM.to_owned(), grad_norm));
            self.progressed.skipped_in_a_row = 0;
        } else if factor.is_none_or(|factor| LossScale::<B>::is_least(first(&factor.wait()))) {
            // Else the scaled loss was too large, and the step was left out.
            return self.left_out("norm of the gradient", grad_norm, step);
        }
        values.extend(others.into_iter().map(|(name, value)| (format!("train/{name}"), first(&value.wait()))));
        self.logs.measured(&mut self.progressed, step, values);
        Ok(())
    }

    /// Counts a step that is not finite, and refuses to go on where there are too many in a row.
    fn left_out(&mut self, what: &'static str, value: f64, step: u64) -> Result<()> {
        if self.progressed.skipped_in_a_row >= self.options.non_finite.max_consecutive() {
            return Err(self.not_finite(what, value, step));
        }
        self.progressed.skipped += 1;
        self.progressed.skipped_in_a_row += 1;
        self.logs.stepped(step);
        Ok(())
    }

    fn not_finite(&self, what: &'static str, value: f64, step: u64) -> TrainError {
        let kept = self.kept.as_ref().map(|(_, path)| path.clone());
        TrainError::NotFinite { what, value, step, skipped: self.progressed.skipped_in_a_row, kept }
    }

    /// Evaluation, checkpoint and logs that are due after a step.
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

    /// Passes over the data so far.
    fn epoch(&self) -> f64 {
        let Position { epoch, batch } = self.progressed.position;
        epoch as f64 + batch as f64 / self.batches_per_epoch.max(1) as f64
    }

    fn record(&mut self) -> Result<()> {
        let epoch = self.epoch();
        self.logs.record(&mut self.progressed, epoch)
    }

    fn evaluate(&mut self, state: &State<B, M, T>) -> Result<()> {
        let begun = Instant::now();
        let average = state.ema.clone().map(|average| ema_model(average, &state.model));
        let model = average.as_ref().unwrap_or(&state.model);
        let evaluation = (self.evaluate)(model)?;
        let ranks = &self.options.ranks;
        let evaluation = if ranks.is_shared() { same_evaluation(evaluation, ranks) } else { evaluation };
        let loss = evaluation.get("loss").copied();
        if loss.is_none() && self.options.patience.is_some() {
            let names: Vec<&str> = evaluation.keys().map(String::as_str).collect();
            let given = if names.is_empty() { "nothing".into() } else { format!("only {}", names.join(", ")) };
            return Err(TrainError::Options(format!(
                "early stopping goes by an evaluation's `loss`, and this one gives {given}: name a number that is to \
                 become small `loss`, or leave out `patience`"
            )));
        }
        self.logs.evaluated(&self.progressed, self.epoch(), evaluation)?;
        match (loss, self.progressed.best) {
            (None, _) => {}
            (Some(loss), best) if loss.is_finite() && best.is_none_or(|(_, best)| loss < best) => {
                (self.progressed.best, self.progressed.stale) = (Some((self.progressed.step, loss)), 0);
                self.best.replace(model, &self.progressed)?;
            }
            _ => self.progressed.stale += 1,
        }
        self.logs.pause(begun.elapsed());
        Ok(())
    }

    /// Writes a checkpoint, unless the newest is of this step.
    fn save(&mut self, state: &State<B, M, T>) -> Result<()> {
        let step = self.progressed.step;
        // Only rank 0 knows whether there is one, so all ranks take part.
        let gathered = self.is_divided.then(|| {
            let optimizer = whole(state.optimizer.clone(), &state.model, &self.options.ranks);
            TrainState { optimizer, ..state.clone() }
        });
        if self.kept.as_ref().is_some_and(|(kept, _)| *kept == step) {
            return Ok(());
        }
        let begun = Instant::now();
        self.check(state)?;
        let Some(checkpoints) = &self.checkpoints else { return Ok(()) };
        // The logs first: a checkpoint says that everything up to its step is on the disk.
        self.logs.flush()?;
        let path = checkpoints.save(gathered.as_ref().unwrap_or(state), &self.progressed)?;
        self.kept = Some((step, path));
        self.best.checkpointed(&self.progressed)?;
        self.logs.pause(begun.elapsed());
        Ok(())
    }

    /// Refuses parameters that are not finite: a step's loss and gradient say nothing about what it led to.
    fn check(&self, state: &State<B, M, T>) -> Result<()> {
        let trained = filter(state.model.clone(), &self.options.step.trainable);
        let finite = all_finite(&trained).is_none_or(|finite| finite.into_data().iter::<bool>().all(|finite| finite));
        if finite {
            return Ok(());
        }
        let norm = global_norm(&trained).map_or(f64::NAN, |norm| number(&Array::new(norm)));
        Err(self.not_finite("norm of the parameters", norm, self.progressed.step))
    }
}

fn number<B: Backend>(value: &Array<B, 1>) -> f64 {
    first(&value.val().into_data())
}

fn first(values: &TensorData) -> f64 {
    values.iter::<f64>().next().unwrap_or(f64::NAN)
}
