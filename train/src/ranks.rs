//! Collectives of a run. A failed collective ends the job, because no rank can continue without the others.

use burn::tensor::DType;
use grove_backend::{AnyTensor, Backend, ops};
use grove_distributed::{CommError, Communicator, all_reduce_sum, broadcast, gather_missing};
use grove_tree::{Array, Tree, leaves, map};
use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{Evaluation, FitOptions, RunProgress, TrainState, outcome::Measured};

/// Returns the result of a collective, or ends the job if it failed.
pub(crate) fn or_end<T>(result: Result<T, CommError>, ranks: &Communicator) -> T {
    result.unwrap_or_else(|error| ranks.end_job(&error))
}

/// Returns the share of this rank in a weighted mean over all ranks, and the sum of all weights. If all weights are 0,
/// all ranks have the same share.
pub(crate) fn share(weight: f64, ranks: &Communicator) -> (f64, f64) {
    if !ranks.is_shared() {
        return (1.0, weight);
    }
    // Called while the operations of a step are being recorded, so leave them pending.
    let weights = ranks.leaving_pending().all_gather("the weights of a step", vec![weight]);
    let weights = or_end(weights, ranks).concat();
    match weights.iter().sum::<f64>() {
        0.0 => (1.0 / weights.len() as f64, 0.0),
        total => (weight / total, total),
    }
}

/// Sets the gradients of a share of 0 to 0, and multiplies the metrics by the share. Values of a share of 0 become 0
/// even if they are not finite.
pub(crate) fn scaled<B: Backend, M: Tree<B>>(grads: M, (loss, others): Measured<B>, share: f64) -> (M, Measured<B>) {
    let number = |value: Array<B, 1>| {
        Array::new(if share == 0.0 { value.val().zeros_like() } else { value.val().mul_scalar(share) })
    };
    let others = others.into_iter().map(|(name, value)| (name, number(value))).collect();
    let grads = if share == 0.0 { map(grads, |leaf| leaf.zeros_like()) } else { grads };
    (grads, (number(loss), others))
}

/// Sums the metrics of all ranks, each of which has its share, and returns true if any rank is asked to stop.
pub(crate) fn reduce_measured<B: Backend>(
    loss: Array<B, 1>,
    others: BTreeMap<String, Array<B, 1>>,
    stop: bool,
    ranks: &Communicator,
) -> (Array<B, 1>, BTreeMap<String, Array<B, 1>>, bool) {
    const WHAT: &str = "the measurements of a step";
    let device = loss.val().device();
    let names: Vec<&str> = others.keys().map(String::as_str).collect();
    let names = names.join(", ");
    // First values of each rank: its stop flag and the digest of its metric names.
    let mut own = vec![f64::from(u8::from(stop)), f64::from(digest(&names))];
    let on_device = B::reduces(&device, ranks);
    if !on_device {
        let read = |value: &Array<B, 1>| value.val().into_data().iter::<f64>().next().unwrap_or(f64::NAN);
        own.extend([read(&loss)].into_iter().chain(others.values().map(read)));
    }
    let all = or_end(ranks.leaving_pending().all_gather(WHAT, own), ranks);
    if all.iter().any(|values| values[1] != all[0][1]) {
        or_end(ranks.agree(WHAT, &[("the list of metrics".into(), format!("'{names}'"))]), ranks);
    }
    let stop = all.iter().any(|values| values[0] > 0.0);
    if on_device {
        // Nothing is read back, so the device is not synchronised.
        let (names, others): (Vec<String>, Vec<_>) = others.into_iter().unzip();
        let values = [loss].into_iter().chain(others).map(|value| AnyTensor::from(value.val())).collect();
        let sums = ops::all_reduce(values, WHAT, ranks);
        let mut sums = sums.into_iter().filter_map(AnyTensor::into_float).map(Array::new);
        let loss = sums.next().expect("the sum of the loss");
        return (loss, names.into_iter().zip(sums).collect(), stop);
    }
    let sum = |i: usize| {
        let sum: f64 = all.iter().map(|values| values[i]).sum();
        Array::new(burn::tensor::Tensor::from_floats([sum as f32], &device))
    };
    let others = others.into_keys().enumerate().map(|(i, name)| (name, sum(i + 3))).collect();
    (sum(2), others, stop)
}

fn digest(text: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish() as u32
}

/// Broadcasts the buffers of rank 0 to all ranks.
pub(crate) fn same_buffers<B: Backend, M: Tree<B>>(buffers: M, ranks: &Communicator) -> M {
    let of_tree = leaves(&buffers);
    let device = of_tree.iter().find_map(|(_, leaf)| leaf.device());
    let all_float = of_tree.iter().all(|(_, leaf)| !leaf.is_present() || leaf.dtype().is_float());
    match device {
        // Broadcast on the device: an all-reduce of the buffers of rank 0 and zeros.
        Some(device) if all_float && B::reduces(&device, ranks) => {
            let types: Vec<DType> = of_tree.iter().map(|(_, leaf)| leaf.dtype()).collect();
            let own = map(buffers, |leaf| if ranks.rank() == 0 { leaf } else { leaf.zeros_like() });
            let mut types = types.into_iter();
            map(or_end(all_reduce_sum(own, ranks), ranks), |leaf| match types.next() {
                Some(dtype) if dtype.is_float() => leaf.cast_float(dtype.into()),
                _ => leaf,
            })
        }
        _ => or_end(broadcast(buffers, ranks), ranks),
    }
}

/// Ends the job unless all ranks begin the same run.
pub(crate) fn agree<B: Backend, M: Tree<B>>(
    model: &M,
    (steps, batches_per_epoch): (u64, usize),
    key: [u32; 2],
    options: &FitOptions<B>,
) {
    let ranks = &options.ranks;
    let fact = |name: &str, value: String| (name.to_owned(), value);
    let mut facts = vec![
        fact("the version of grove", env!("CARGO_PKG_VERSION").into()),
        fact("the backend", std::any::type_name::<B>().into()),
        fact("the key", format!("{key:?}")),
        fact("the number of steps", steps.to_string()),
        fact("evaluate_every", options.evaluate_every.to_string()),
        fact("checkpoint_every", options.checkpoint_every.to_string()),
        fact("log_every", options.log_every.to_string()),
        fact("patience", format!("{:?}", options.patience)),
        fact("non_finite", format!("{:?}", options.non_finite)),
    ];
    facts.extend(options.all_settings(batches_per_epoch).facts());
    let leaves = leaves(model);
    facts.push(fact("the number of arrays of the model", leaves.len().to_string()));
    facts.extend(leaves.iter().map(|(path, leaf)| (format!("the shape of `{path}`"), leaf.to_string())));
    or_end(ranks.agree("the settings of the run", &facts), ranks);
}

/// Broadcasts the state and progress of rank 0 to all ranks.
pub(crate) fn same_state<B: Backend, M: Tree<B>, S: Tree<B>>(
    state: TrainState<B, M, S>,
    progressed: RunProgress,
    ranks: &Communicator,
) -> Result<(TrainState<B, M, S>, RunProgress), serde_json::Error> {
    let text = or_end(ranks.broadcast_text("the progress of the run", serde_json::to_string(&progressed)?), ranks);
    let state = or_end(broadcast(state, ranks), ranks);
    Ok((state, serde_json::from_str(&text)?))
}

/// True if the optimizer state is sharded, as by `zero1`.
pub(crate) fn is_divided<B: Backend, S: Tree<B>>(state: &S, ranks: &Communicator) -> bool {
    let present: Vec<u8> = leaves(state).iter().map(|(_, leaf)| u8::from(leaf.is_present())).collect();
    let all = or_end(ranks.all_gather("the places of the optimizer's state", present), ranks);
    all.iter().any(|other| *other != all[0])
}

/// Gathers a sharded state, so that each rank has all of it.
pub(crate) fn whole<B: Backend, S: Tree<B>, M: Tree<B>>(state: S, model: &M, ranks: &Communicator) -> S {
    let device = leaves(model).into_iter().find_map(|(_, leaf)| leaf.device()).unwrap_or_default();
    or_end(gather_missing(state, &device, ranks), ranks)
}

/// Returns the tree with only those leaves present that are present in `own`, a tree of the same structure.
pub(crate) fn only_present<B: Backend, S: Tree<B>>(tree: S, own: &S) -> S {
    let mut present = leaves(own).into_iter().map(|(_, leaf)| leaf.is_present());
    map(tree, |leaf| if present.next() == Some(true) { leaf } else { leaf.into_absent() })
}

/// Broadcasts the evaluation of rank 0 to all ranks, bit for bit.
pub(crate) fn same_evaluation(evaluation: Evaluation, ranks: &Communicator) -> Evaluation {
    let lines = evaluation.iter().map(|(name, value)| format!("{:x} {name}\u{0}", value.to_bits()));
    let text = or_end(ranks.broadcast_text("the evaluation", lines.collect()), ranks);
    let line = |line: &str| {
        let (bits, name) = line.split_once(' ')?;
        Some((name.to_owned(), f64::from_bits(u64::from_str_radix(bits, 16).ok()?)))
    };
    text.split_terminator('\u{0}').filter_map(line).collect()
}

/// Broadcasts the model of rank 0 to all ranks, if it has one.
pub(crate) fn same_model<B: Backend, M: Tree<B>>(model: Option<M>, like: &M, ranks: &Communicator) -> Option<M> {
    let has = or_end(ranks.broadcast("the best model", vec![u8::from(model.is_some())]), ranks);
    (has == [1]).then(|| or_end(broadcast(model.unwrap_or_else(|| like.clone()), ranks), ranks))
}
