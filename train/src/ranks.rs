//! Collectives of a run. A failed collective ends the job, because no rank can continue without the others.

use burn::tensor::{DType, Tensor};
use grove_backend::{AnyTensor, Backend, ops};
use grove_distributed::{CommError, Communicator, OverlappedSum, all_reduce_sum, broadcast, gather_missing};
use grove_layers::sync_batch_norm;
use grove_optim::device_of;
use grove_tree::{Array, Key, Tree, combine, is_buffer, leaves, map, partition};
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{
    Evaluation, FitOptions, Metrics, Result, RunProgress, TrainError, TrainState, arrays::scalar, outcome::Measured,
};

/// Returns the result of a collective, or ends the job if it failed.
pub(crate) fn or_end<T>(result: Result<T, CommError>, ranks: &Communicator) -> T {
    result.unwrap_or_else(|error| ranks.end_job(&error))
}

/// The ranks of a run. A single rank, the default, keeps what it has: its methods return their arguments.
#[derive(Clone, Default)]
pub(crate) struct Ranks(Communicator);

impl Ranks {
    pub(crate) fn new(ranks: &Communicator) -> Self {
        Self(ranks.clone())
    }

    pub(crate) fn communicator(&self) -> &Communicator {
        &self.0
    }

    /// True if there are other ranks.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    fn or_end<T>(&self, result: Result<T, CommError>) -> T {
        or_end(result, &self.0)
    }

    /// Ends the job unless all ranks begin the same run. Returns the model with batch statistics over all ranks.
    pub(crate) fn begin<B: Backend, M: Tree<B>>(
        &self,
        model: M,
        (steps, batches_per_epoch): (u64, usize),
        key: Key,
        options: &FitOptions<B>,
    ) -> M {
        if !self.is_shared() {
            return model;
        }
        let fact = |name: &str, value: String| (name.to_owned(), value);
        let mut facts = vec![
            fact("the version of grove", env!("CARGO_PKG_VERSION").into()),
            fact("the backend", std::any::type_name::<B>().into()),
            fact("the key", format!("{:?}", key.words())),
            fact("the number of steps", steps.to_string()),
            fact("evaluate_every", options.evaluate_every.to_string()),
            fact("checkpoint_every", options.checkpoint_every.to_string()),
            fact("log_every", options.log_every.to_string()),
            fact("patience", format!("{:?}", options.patience)),
            fact("non_finite", format!("{:?}", options.non_finite)),
        ];
        facts.extend(options.all_settings(batches_per_epoch).facts());
        let leaves = leaves(&model);
        facts.push(fact("the number of arrays of the model", leaves.len().to_string()));
        facts.extend(leaves.iter().map(|(path, leaf)| (format!("the shape of `{path}`"), leaf.to_string())));
        self.or_end(self.0.agree("the settings of the run", &facts));
        sync_batch_norm(model, &self.0)
    }

    /// Returns the model with batch statistics of one rank.
    pub(crate) fn end<B: Backend, M: Tree<B>>(&self, model: M) -> M {
        if self.is_shared() { sync_batch_norm(model, &Communicator::single()) } else { model }
    }

    /// Returns the key of this rank's part of a step.
    pub(crate) fn key(&self, key: Key) -> Key {
        if self.is_shared() { key.fold_in(self.0.rank() as u32) } else { key }
    }

    /// Returns the share of this rank in a weighted mean over all ranks, and the sum of all weights. If all weights are
    /// 0, all ranks have the same share.
    pub(crate) fn share(&self, weight: f64) -> (f64, f64) {
        if !self.is_shared() {
            return (1.0, weight);
        }
        // Called while the operations of a step are being recorded, so leave them pending.
        let weights = self.0.leaving_pending().all_gather("the weights of a step", vec![weight]);
        let weights = self.or_end(weights).concat();
        match weights.iter().sum::<f64>() {
            0.0 => (1.0 / weights.len() as f64, 0.0),
            total => (weight / total, total),
        }
    }

    /// Sums the gradients of all ranks, or finishes the sum that was started during the backward pass.
    pub(crate) fn sum<B: Backend, M: Tree<B>>(&self, grads: M, started: Option<&OverlappedSum>) -> M {
        self.or_end(match started {
            Some(sums) => sums.finish(grads),
            None => all_reduce_sum(grads, &self.0),
        })
    }

    /// Sums the loss and the other metrics of all ranks, each of which has its share, and returns true if any rank is
    /// asked to stop.
    pub(crate) fn sum_metrics<B: Backend>(&self, metrics: Metrics<B>, stop: bool) -> (Metrics<B>, bool) {
        const WHAT: &str = "the measurements of a step";
        if !self.is_shared() {
            return (metrics, stop);
        }
        let Metrics { loss, grad_norm, others } = metrics;
        let device = loss.val().device();
        let names: Vec<&str> = others.keys().map(String::as_str).collect();
        let names = names.join(", ");
        // First values of each rank: its stop flag and the digest of its metric names.
        let mut own = vec![f64::from(u8::from(stop)), f64::from(digest(&names))];
        let on_device = B::reduces(&device, &self.0);
        if !on_device {
            own.extend([&loss].into_iter().chain(others.values()).map(|value| scalar(value.val().into_data())));
        }
        let all = self.or_end(self.0.leaving_pending().all_gather(WHAT, own));
        if all.iter().any(|values| values[1] != all[0][1]) {
            self.or_end(self.0.agree(WHAT, &[("the list of metrics".into(), format!("'{names}'"))]));
        }
        let stop = all.iter().any(|values| values[0] > 0.0);
        let (names, others): (Vec<String>, Vec<_>) = others.into_iter().unzip();
        let sums: Vec<Tensor<B, 1>> = if on_device {
            // Nothing is read back, so the device is not synchronised.
            let values = [loss].into_iter().chain(others).map(|value| AnyTensor::from(value.val())).collect();
            ops::all_reduce(values, WHAT, &self.0).into_iter().filter_map(AnyTensor::into_float).collect()
        } else {
            let sum = |i: usize| all.iter().map(|values| values[i]).sum::<f64>() as f32;
            (2..names.len() + 3).map(|i| Tensor::from_floats([sum(i)], &device)).collect()
        };
        let mut sums = sums.into_iter().map(Array::new);
        let loss = sums.next().expect("the sum of the loss");
        (Metrics { loss, grad_norm, others: names.into_iter().zip(sums).collect() }, stop)
    }

    /// Returns the model with the buffers of rank 0: ranks may compute different ones.
    pub(crate) fn same_buffers<B: Backend, M: Tree<B>>(&self, model: M) -> M {
        if !self.is_shared() {
            return model;
        }
        let (params, buffers) = partition(model, &!is_buffer());
        let of_tree = leaves(&buffers);
        let all_float = of_tree.iter().all(|(_, leaf)| !leaf.is_present() || leaf.dtype().is_float());
        let buffers = match device_of(&buffers) {
            // Broadcast on the device: an all-reduce of the buffers of rank 0 and zeros.
            Some(device) if all_float && B::reduces(&device, &self.0) => {
                let types: Vec<DType> = of_tree.iter().map(|(_, leaf)| leaf.dtype()).collect();
                let own = map(buffers, |leaf| if self.0.rank() == 0 { leaf } else { leaf.zeros_like() });
                let mut types = types.into_iter();
                map(self.sum(own, None), |leaf| match types.next() {
                    Some(dtype) if dtype.is_float() => leaf.cast_float(dtype.into()),
                    _ => leaf,
                })
            }
            _ => self.or_end(broadcast(buffers, &self.0)),
        };
        combine(params, buffers).expect("the parts of one tree")
    }

    /// Broadcasts the state and progress of rank 0 to all ranks.
    pub(crate) fn same_state<B: Backend, M: Tree<B>, S: Tree<B>>(
        &self,
        state: TrainState<B, M, S>,
        progressed: RunProgress,
    ) -> Result<(TrainState<B, M, S>, RunProgress)> {
        if !self.is_shared() {
            return Ok((state, progressed));
        }
        let failed = |error: serde_json::Error| TrainError::Options(format!("the progress of the run: {error}"));
        let text = serde_json::to_string(&progressed).map_err(failed)?;
        let text = self.or_end(self.0.broadcast_text("the progress of the run", text));
        let state = self.or_end(broadcast(state, &self.0));
        Ok((state, serde_json::from_str(&text).map_err(failed)?))
    }

    /// True if the optimizer state is sharded, as by `zero1`.
    pub(crate) fn is_sharded<B: Backend, S: Tree<B>>(&self, state: &S) -> bool {
        if !self.is_shared() {
            return false;
        }
        let present: Vec<u8> = leaves(state).iter().map(|(_, leaf)| u8::from(leaf.is_present())).collect();
        let all = self.or_end(self.0.all_gather("the places of the optimizer's state", present));
        all.iter().any(|other| *other != all[0])
    }

    /// Gathers a sharded state, so that each rank has all of it.
    pub(crate) fn whole<B: Backend, S: Tree<B>, M: Tree<B>>(&self, state: S, model: &M) -> S {
        self.or_end(gather_missing(state, &device_of(model).unwrap_or_default(), &self.0))
    }

    /// Broadcasts the evaluation of rank 0 to all ranks, bit for bit.
    pub(crate) fn same_evaluation(&self, evaluation: Evaluation) -> Evaluation {
        if !self.is_shared() {
            return evaluation;
        }
        let lines = evaluation.iter().map(|(name, value)| format!("{:x} {name}\u{0}", value.to_bits()));
        let text = self.or_end(self.0.broadcast_text("the evaluation", lines.collect()));
        let line = |line: &str| {
            let (bits, name) = line.split_once(' ')?;
            Some((name.to_owned(), f64::from_bits(u64::from_str_radix(bits, 16).ok()?)))
        };
        text.split_terminator('\u{0}').filter_map(line).collect()
    }

    /// Broadcasts the model of rank 0 to all ranks, if it has one.
    pub(crate) fn same_model<B: Backend, M: Tree<B>>(&self, model: Option<M>, like: &M) -> Option<M> {
        let has = self.or_end(self.0.broadcast("the best model", vec![u8::from(model.is_some())]));
        (has == [1]).then(|| self.or_end(broadcast(model.unwrap_or_else(|| like.clone()), &self.0)))
    }
}

/// Multiplies gradients and metrics by the share of this rank. Metrics of a share of 0 become 0 even if they are not
/// finite. Gradients of any other share have it already, from the loss.
pub(crate) fn scaled<B: Backend, M: Tree<B>>(grads: M, (loss, others): Measured<B>, share: f64) -> (M, Measured<B>) {
    if share == 1.0 {
        return (grads, (loss, others));
    }
    let number = |value: Array<B, 1>| {
        Array::new(if share == 0.0 { value.val().zeros_like() } else { value.val().mul_scalar(share) })
    };
    let others = others.into_iter().map(|(name, value)| (name, number(value))).collect();
    let grads = if share == 0.0 { map(grads, |leaf| leaf.zeros_like()) } else { grads };
    (grads, (number(loss), others))
}

/// Returns the tree with only those leaves present that are present in `own`, a tree of the same structure.
pub(crate) fn only_present<B: Backend, S: Tree<B>>(tree: S, own: &S) -> S {
    let mut present = leaves(own).into_iter().map(|(_, leaf)| leaf.is_present());
    map(tree, |leaf| if present.next() == Some(true) { leaf } else { leaf.into_absent() })
}

fn digest(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish() as u32
}
