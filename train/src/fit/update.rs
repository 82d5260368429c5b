//! One step of a run.

use grove_backend::Backend;
use grove_optim::{GradientTransformation, all_finite, select};
use grove_tree::{Key, Tree};

use super::{
    NonFinite, TrainState,
    pending::Pending,
    run::{Run, State},
};
use crate::{
    LossScale, Metrics, Result,
    accumulate::Accumulated,
    arrays::scalar,
    data::{Data, DataError, Part, Parts, Prefetch},
    ema::{ema_decay, ema_step},
    gradients::{Gradients, RankPart},
    log::{GRAD_NORM, TRAIN_LOSS},
};

impl<B, M, T, D> Run<'_, B, M, T, D>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    D: Data,
{
    /// One step of the optimizer.
    pub(super) fn step(&mut self, state: State<B, M, T>, batches: &mut Prefetch<Parts<D>>) -> Result<State<B, M, T>> {
        let step = self.progressed.step;
        let TrainState { mut model, optimizer: mut state, ema, mut loss_scale } = state;
        // A non-finite batch would corrupt the running statistics before it is detected, so keep the model of before.
        let skips = self.options.non_finite != NonFinite::Stop;
        let untouched = skips.then(|| model.clone());
        let (grads, metrics, has_successor) = self.mean_gradients(&mut model, loss_scale.as_ref(), batches)?;
        let factor = loss_scale.as_ref().map(|scale| scale.factor.clone());
        // The same two values that `read_pending_metrics` reads a step later.
        let good = skips.then(|| all_finite(&(metrics.loss.clone(), metrics.grad_norm.clone()))).flatten();
        if let (Some(good), Some(untouched), true) = (&good, untouched, has_successor) {
            model = select(good, model, untouched);
        }
        let finite = loss_scale.as_ref().and_then(|_| all_finite(&grads));
        let accepted = match (self.options.non_finite, finite.clone(), good) {
            (NonFinite::Skip { .. }, Some(finite), Some(good)) => Some(finite.bool_and(good)),
            (NonFinite::Skip { .. }, None, good) => good,
            (_, finite, _) => finite,
        };
        let before = accepted.map(|accepted| (accepted, model.clone(), state.clone()));
        (model, state) = self.optimizer.step(grads, state, model);
        if let Some((accepted, model_before, state_before)) = before {
            (model, state) = (select(&accepted, model, model_before), select(&accepted, state, state_before));
        }
        if let Some(finite) = finite {
            loss_scale = loss_scale.map(|scale| scale.adjusted(finite));
        }
        let ema = match (ema, self.options.ema) {
            (Some(ema), Some(decay)) => Some(ema_step(ema, &model, ema_decay(decay, step))),
            (ema, _) => ema,
        };
        // Wait for the previous step only now that this one is queued. The reads of this step are queued behind it and
        // before the next one.
        let pending = Pending::start(step + 1, metrics, factor);
        self.read_pending_metrics()?;
        self.pending = Some(pending);
        self.progressed.step += 1;
        self.progressed.seconds = self.before + self.begun.elapsed().as_secs_f64();
        Ok(TrainState { model, optimizer: state, ema, loss_scale })
    }

    /// Returns the means of the gradients and metrics of the next batches on all ranks. Updates the buffers of the model,
    /// and returns true if it has any.
    fn mean_gradients(
        &mut self,
        model: &mut M,
        loss_scale: Option<&LossScale<B>>,
        batches: &mut Prefetch<Parts<D>>,
    ) -> Result<(M, Metrics<B>, bool)> {
        let key = Key::from_words(self.progressed.key).fold_in(self.progressed.step as u32);
        let key = self.ranks.key(key);
        let count = self.options.accumulate;
        let mut batch_sums = Accumulated::new();
        let (mut has_successor, mut sums) = (false, None);
        for i in 0..count {
            // The iterator ends only after an error.
            let epoch = self.progressed.position.epoch;
            let (position, Part { batch, examples }) = batches.next().ok_or(DataError::NoBatches { epoch })??;
            self.progressed.position = position;
            let key = if count == 1 { key } else { key.fold_in(i as u32) };
            let part = RankPart { ranks: self.ranks.clone(), examples, whole_step: count == 1 };
            let factor = loss_scale.map(|scale| &scale.factor);
            let Gradients { grads, successor, measured, weight, sums: started } =
                (self.gradients)(model, &batch, key, factor, &part);
            sums = started;
            if let Some(successor) = successor {
                (*model, has_successor) = (successor, true);
            }
            batch_sums.add(grads, measured, weight);
        }
        let unscale = |grads| {
            let grads = match loss_scale {
                Some(scale) => scale.unscale(grads),
                None => grads,
            };
            // The gradients of each rank are its share of the mean, so the sum is the mean.
            self.ranks.sum(grads, sums.as_deref())
        };
        let (grads, metrics) = batch_sums.finish(unscale).expect("a step has at least one batch");
        let (metrics, stopping) = self.ranks.sum_metrics(metrics, self.stop_requested());
        self.stopping = stopping;
        if has_successor {
            *model = self.ranks.same_buffers(model.clone());
        }
        Ok((grads, metrics, has_successor))
    }

    /// Waits for the metrics of the last step. If they are not finite, the step was skipped, or the run ends.
    pub(super) fn read_pending_metrics(&mut self) -> Result<()> {
        let Some(Pending { step, loss, grad_norm, others, factor }) = self.pending.take() else { return Ok(()) };
        let (loss, grad_norm) = (scalar(loss.wait()), scalar(grad_norm.wait()));
        if !loss.is_finite() {
            return self.count_skipped("loss", loss, step);
        }
        let mut values = vec![(TRAIN_LOSS.to_owned(), loss)];
        if grad_norm.is_finite() {
            values.push((GRAD_NORM.to_owned(), grad_norm));
            self.progressed.skipped_in_a_row = 0;
        } else if factor.is_none_or(|factor| LossScale::<B>::is_least(scalar(factor.wait()))) {
            // Otherwise the scaled loss overflowed, and the step was skipped.
            return self.count_skipped("norm of the gradient", grad_norm, step);
        }
        values.extend(others.into_iter().map(|(name, value)| (format!("train/{name}"), scalar(value.wait()))));
        self.logs.measured(&mut self.progressed, step, values);
        Ok(())
    }

    /// Counts a non-finite step. Returns an error after too many consecutive ones.
    fn count_skipped(&mut self, what: &'static str, value: f64, step: u64) -> Result<()> {
        if self.progressed.skipped_in_a_row >= self.options.non_finite.max_consecutive() {
            return Err(self.not_finite(what, value, step));
        }
        self.progressed.skipped += 1;
        self.progressed.skipped_in_a_row += 1;
        self.logs.stepped(step);
        Ok(())
    }
}
