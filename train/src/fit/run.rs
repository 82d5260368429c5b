use grove_backend::{Autodiff, Backend};
use grove_optim::{GradientTransformation, apply_updates};
use grove_tree::{Array, Key, Tree, leaves};
use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::{Ended, Evaluation, FitOptions, Fitted, TrainState};
use crate::{
    Checkpoints, LossScale, Metrics, Outcome, Progressed, Result, TrainError,
    data::{Data, Position, prefetch},
    ema::{ema_decay, ema_step},
    fit::logs::Logs,
    scale::{all_finite, select},
    step::{gradients, mean, sum, with_buffers},
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
    let steps = options.steps(data.batches_per_epoch())?;
    let run = Run::begin(model, optimizer, loss_fn, evaluate, key, steps, data.batches_per_epoch(), options)?;
    run.train(data)
}

/// A run that is going on.
struct Run<'a, B: Backend, M: Tree<B>, T: GradientTransformation<B, M>, L, E> {
    optimizer: &'a T,
    loss_fn: L,
    evaluate: E,
    options: &'a FitOptions<B>,
    device: B::Device,
    steps: u64,
    batches_per_epoch: usize,
    /// There, but for the inside of a step.
    state: Option<TrainState<B, M, T::State>>,
    progressed: Progressed,
    best: Option<M>,
    checkpoints: Option<Checkpoints>,
    best_checkpoint: Option<Checkpoints>,
    /// The newest checkpoint.
    kept: Option<(u64, PathBuf)>,
    logs: Logs,
    /// What the last step measured, still on the device.
    pending: Option<(u64, Metrics<B>)>,
    begun: Instant,
    /// Seconds of training before this process.
    before: f64,
}

impl<'a, B, M, T, L, E> Run<'a, B, M, T, L, E>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    E: FnMut(&M) -> Result<Evaluation>,
{
    #[allow(clippy::too_many_arguments)]
    fn begin(
        model: M,
        optimizer: &'a T,
        loss_fn: L,
        evaluate: E,
        key: Key,
        steps: u64,
        batches_per_epoch: usize,
        options: &'a FitOptions<B>,
    ) -> Result<Self> {
        let device = leaves(&model).into_iter().find_map(|(_, leaf)| leaf.device());
        let device = device.ok_or_else(|| TrainError::Options("the model has no weights to train".into()))?;
        // Frozen parameters need no state.
        let trained = grove_tree::filter(model.clone(), &options.step.trainable);
        let mut state = TrainState {
            optimizer: optimizer.init(&trained),
            ema: options.ema.map(|_| model.clone()),
            loss_scale: options.loss_scaling.then(|| LossScale::new(&device)),
            model,
        };
        let position = Position::default();
        let mut progressed = Progressed { step: 0, position, key: key.words(), seconds: 0.0, best: None, stale: 0 };
        let open = |name: &str, keep| options.directory.as_ref().map(|run| Checkpoints::open(run.join(name), keep));
        let checkpoints = open("checkpoints", options.keep).transpose()?;
        let best_checkpoint = open("best", 1).transpose()?;
        let (mut best, mut kept, mut remarks) = (None, None, Vec::new());
        if let (Some(checkpoints), Some(directory)) = (&checkpoints, &options.directory) {
            if !options.resume
                && let Some((step, _)) = checkpoints.list()?.first()
            {
                return Err(TrainError::RunExists { directory: directory.clone(), step: *step });
            }
            if let Some(restored) = checkpoints.load(&state, &device)? {
                remarks = restored.skipped;
                (state, progressed) = (restored.state, restored.progressed);
                remarks.push(format!("going on after step {} of {}", progressed.step, restored.path.display()));
                kept = Some((progressed.step, restored.path));
            }
        }
        if let (Some(_), Some(checkpoint)) = (progressed.best, &best_checkpoint) {
            let restored = checkpoint.load(&state.model, &device)?;
            // A best model saved by a process that was killed before its next checkpoint will be found again.
            best = restored.filter(|best| Some(best.progressed.step) == progressed.best.map(|(step, _)| step));
        }
        let logs = Logs::open(options, steps, &progressed, &remarks)?;
        Ok(Self {
            optimizer,
            loss_fn,
            evaluate,
            options,
            device,
            steps,
            batches_per_epoch,
            state: Some(state),
            before: progressed.seconds,
            progressed,
            best: best.map(|restored| restored.state),
            checkpoints,
            best_checkpoint,
            kept,
            logs,
            pending: None,
            begun: Instant::now(),
        })
    }

    fn train<D: Data, O: Into<Outcome<B, M>>>(mut self, data: &Arc<D>) -> Result<Fitted<M>>
    where
        L: Fn(M::On<Autodiff<B>>, &D::Batch, Key) -> O,
    {
        let mut batches = prefetch(data.clone(), self.progressed.position, 2);
        let mut ended = Ended::Finished;
        while self.progressed.step < self.steps {
            if self.options.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                ended = Ended::Interrupted;
                break;
            }
            if self.exhausted() {
                ended = Ended::EarlyStop;
                break;
            }
            let mut window = Vec::with_capacity(self.options.accumulate);
            for _ in 0..self.options.accumulate {
                // The iterator is endless, unless it ends with an error.
                let Some(item) = batches.next() else { break };
                let (position, batch) = item?;
                self.progressed.position = position;
                window.push(batch);
            }
            self.step(&window)?;
            self.after_step()?;
        }
        self.settle()?;
        if !self.progressed.step.is_multiple_of(self.options.log_every) && ended != Ended::Finished {
            self.logs.record(&self.progressed, self.epoch())?;
        }
        self.save()?;
        self.logs.flush()?;
        let state = self.state.ok_or_else(|| TrainError::Options("the run has no state".into()))?;
        Ok(Fitted {
            best: self.best.zip(self.progressed.best).map(|(model, (step, loss))| (model, step, loss)),
            model: state.model,
            ema: state.ema,
            steps: self.progressed.step,
            seconds: self.progressed.seconds,
            ended,
        })
    }

    fn exhausted(&self) -> bool {
        self.options.patience.is_some_and(|patience| self.progressed.stale >= patience.max(1))
    }

    /// One step of the optimizer.
    fn step<D, O: Into<Outcome<B, M>>>(&mut self, window: &[D]) -> Result<()>
    where
        L: Fn(M::On<Autodiff<B>>, &D, Key) -> O,
    {
        let step = self.progressed.step;
        let key = Key::from_words(self.progressed.key).fold_in(step as u32);
        // Taken out, so that the optimizer gets the only handles and can use their memory again.
        let Some(TrainState { model, optimizer: state, ema, loss_scale }) = self.state.take() else { return Ok(()) };
        let mut total: Option<M> = None;
        let mut measured: Vec<Metrics<B>> = Vec::with_capacity(window.len());
        let mut successor = None;
        for (i, batch) in window.iter().enumerate() {
            let key = if window.len() == 1 { key } else { key.fold_in(i as u32) };
            let (grads, next, metrics) =
                gradients(&model, &self.loss_fn, batch, key, &self.options.step, loss_scale.as_ref());
            total = Some(match total {
                Some(total) => sum(total, grads),
                None => grads,
            });
            successor = next.or(successor);
            measured.push(metrics);
        }
        let Some(grads) = total.map(|total| mean(total, window.len())) else { return Ok(()) };
        let metrics = Metrics::of_several(measured, &grads);
        let (model, state, loss_scale) = match loss_scale {
            None => {
                let (updates, state) = self.optimizer.update(grads, state, &model);
                (apply_updates(model, updates), state, None)
            }
            Some(scale) => {
                let finite = all_finite(&grads, &self.device);
                let (updates, next) = self.optimizer.update(grads, state.clone(), &model);
                let moved = apply_updates(model.clone(), updates);
                let (model, state) = (select(&finite, moved, model), select(&finite, next, state));
                (model, state, Some(scale.adjusted(finite)))
            }
        };
        let model = with_buffers(model, successor);
        let ema = match (ema, self.options.ema) {
            (Some(ema), Some(decay)) => Some(ema_step(ema, &model, ema_decay(decay, step))),
            (ema, _) => ema,
        };
        self.state = Some(TrainState { model, optimizer: state, ema, loss_scale });
        // The step before is read only now, when this one is under way.
        self.settle()?;
        self.pending = Some((step + 1, metrics));
        self.progressed.step += 1;
        self.progressed.seconds = self.before + self.begun.elapsed().as_secs_f64();
        Ok(())
    }

    /// Reads what the last step measured, and refuses to go on where it is not finite.
    fn settle(&mut self) -> Result<()> {
        let Some((step, metrics)) = self.pending.take() else { return Ok(()) };
        let loss = number(&metrics.loss);
        let grad_norm = number(&metrics.grad_norm);
        let not_finite = |what, value| {
            let kept = self.kept.as_ref().map(|(_, path)| path.clone());
            Err(TrainError::NotFinite { what, value, step, kept })
        };
        if !loss.is_finite() {
            return not_finite("loss", loss);
        }
        // With loss scaling gradients may overflow; the step was then left out.
        if !grad_norm.is_finite() && !self.options.loss_scaling {
            return not_finite("norm of the gradient", grad_norm);
        }
        let others = metrics.others.iter().map(|(name, value)| (name.clone(), number(value)));
        self.logs.measured(step, loss, grad_norm, others);
        Ok(())
    }

    /// What is due after a step.
    fn after_step(&mut self) -> Result<()> {
        let step = self.progressed.step;
        let last = step == self.steps;
        if step.is_multiple_of(self.options.log_every) || last {
            self.settle()?;
            self.logs.record(&self.progressed, self.epoch())?;
        }
        let every = self.options.evaluate_every;
        if every > 0 && (step.is_multiple_of(every) || last) {
            self.settle()?;
            self.evaluate()?;
        }
        if step.is_multiple_of(self.options.checkpoint_every) {
            self.settle()?;
            self.save()?;
        }
        Ok(())
    }

    /// Passes over the data so far.
    fn epoch(&self) -> f64 {
        let Position { epoch, batch } = self.progressed.position;
        epoch as f64 + batch as f64 / self.batches_per_epoch.max(1) as f64
    }

    fn evaluate(&mut self) -> Result<()> {
        let Some(state) = &self.state else { return Ok(()) };
        let model = state.ema.as_ref().unwrap_or(&state.model);
        let evaluation = (self.evaluate)(model)?;
        let loss = evaluation.get("loss").copied();
        self.logs.evaluated(&self.progressed, self.epoch(), evaluation)?;
        let Some(loss) = loss else { return Ok(()) };
        if self.progressed.best.is_some_and(|(_, best)| loss.is_nan() || loss >= best) {
            self.progressed.stale += 1;
            return Ok(());
        }
        (self.progressed.best, self.progressed.stale) = (Some((self.progressed.step, loss)), 0);
        if let Some(checkpoint) = &self.best_checkpoint {
            checkpoint.save(model, &self.progressed)?;
        }
        self.best = Some(model.clone());
        Ok(())
    }

    /// Writes a checkpoint, unless the newest is of this step.
    fn save(&mut self) -> Result<()> {
        let step = self.progressed.step;
        let (Some(checkpoints), Some(state)) = (&self.checkpoints, &self.state) else { return Ok(()) };
        if self.kept.as_ref().is_some_and(|(kept, _)| *kept == step) {
            return Ok(());
        }
        // The logs first: a checkpoint says that everything up to its step is on the disk.
        self.logs.flush()?;
        let path = checkpoints.save(state, &self.progressed)?;
        self.kept = Some((step, path));
        Ok(())
    }
}

fn number<B: Backend>(value: &Array<B, 1>) -> f64 {
    value.val().into_data().iter::<f64>().next().unwrap_or(f64::NAN)
}
