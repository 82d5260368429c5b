use burn::tensor::{FloatDType, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_distributed::{Communicator, OverlappedSum, ReduceOptions};
use grove_transform::GradOptions;
use grove_tree::{AnyArray, Array, Key, Path, Tree, cast, map_together, zip_map};
use std::sync::Arc;

use crate::{Outcome, StepOptions, outcome::Measured, ranks};

/// Gradients and metrics of one batch.
pub(crate) struct Gradients<B: Backend, M: Tree<B>> {
    /// Gradients of the loss, or of the loss times the loss scale.
    pub(crate) grads: M,
    /// Model with updated buffers.
    pub(crate) successor: Option<M>,
    pub(crate) measured: Measured<B>,
    /// See [`Outcome::weight`].
    pub(crate) weight: f64,
    /// All-reduce of the gradients, if it was started during the backward pass.
    pub(crate) sums: Option<Arc<OverlappedSum>>,
}

/// A rank's part of a batch.
#[derive(Clone, Copy)]
pub(crate) struct RankPart<'a> {
    pub(crate) ranks: &'a Communicator,
    /// Number of examples of the part.
    pub(crate) examples: usize,
    /// True if the batch is the only one of its step, so that its gradients can be all-reduced during the backward
    /// pass.
    pub(crate) whole_step: bool,
}

/// Bucket size, in bytes, of an all-reduce during the backward pass: small enough that most buckets are sent before the
/// pass ends, and larger with more ranks, since each rank costs a message.
fn early_bucket(ranks: usize) -> usize {
    ((4 << 20) * (ranks / 32).max(1)).min(ReduceOptions::default().bucket_bytes)
}

/// Computes the gradients of the loss, or of the loss times a factor `[1]`. With several ranks, the gradients and
/// metrics are this rank's share of the means over all ranks, and the weight is the total of all ranks.
pub(crate) fn gradients<B: Backend, M: Tree<B>, D: ?Sized, O: Into<Outcome<B, M>>>(
    model: &M,
    loss_fn: &impl Fn(M::On<Autodiff<B>>, &D, Key) -> O,
    batch: &D,
    key: Key,
    options: &StepOptions<B>,
    factor: Option<&Array<B, 1>>,
    part: Option<RankPart<'_>>,
) -> Gradients<B, M> {
    let (mut weight, mut share) = (1.0, 1.0);
    // Overlap would wait at every gradient on a device that executes asynchronously; and scaled gradients must be
    // unscaled before the sum.
    let early = part.filter(|part| part.whole_step && !B::LAZY && !B::FUSES && factor.is_none());
    let sums = early.map(|part| {
        let takes_part = |path: &Path, leaf: &_| !path.is_buffer() && options.trainable.passes(path, leaf);
        let options = ReduceOptions { bucket_bytes: early_bucket(part.ranks.size()), ..ReduceOptions::default() };
        Arc::new(OverlappedSum::new(model, takes_part, part.ranks, options))
    });
    let grad_options = GradOptions::new().only(options.trainable.clone());
    let grad_options = match sums.clone() {
        Some(sums) => grad_options.on_gradient(move |leaf, gradient| sums.add(leaf, gradient)),
        None => grad_options,
    };
    let (_, grads, (loss, successor, others)) = grad_options.value_and_grad_aux(model, |model| {
        let model = match options.compute {
            Some(dtype) => cast::<Autodiff<B>, _>(model, dtype),
            None => model,
        };
        let Outcome { loss, successor, metrics, weight: count } = loss_fn(model, batch, key).into();
        (share, weight) = shared(count, part);
        if let (Some(sums), 0.0) = (&sums, share) {
            sums.leave_out();
        }
        let loss = loss.cast(FloatDType::F32);
        let scaled = match factor {
            Some(factor) => loss.clone() * Tensor::from_inner(factor.val()),
            None => loss.clone(),
        };
        // Scale before the backward pass, because layers all-reduce gradients in it.
        let scaled = if share == 1.0 { scaled } else { scaled.mul_scalar(share) };
        (scaled, (Array::new(loss), successor, metrics))
    });
    let successor = successor.map(|successor| with_buffers(model.clone(), successor));
    let measured = (loss, others);
    let (grads, measured) = if share == 1.0 { (grads, measured) } else { ranks::scaled(grads, measured, share) };
    Gradients { grads, successor, measured, weight, sums }
}

/// Returns the share of a rank's part in the whole batch, and the weight of the whole batch.
pub(crate) fn shared(weight: Option<f64>, part: Option<RankPart<'_>>) -> (f64, f64) {
    match (weight, part) {
        (weight, None) => (1.0, weight.unwrap_or(1.0)),
        (Some(_), Some(RankPart { ranks, examples: 0, .. })) => ranks::share(0.0, ranks),
        (Some(weight), Some(RankPart { ranks, .. })) => ranks::share(weight, ranks),
        // All batches without a weight count the same.
        (None, Some(RankPart { ranks, examples, .. })) => (ranks::share(examples as f64, ranks).0, 1.0),
    }
}

/// Type of a model returned from the autodiff backend, which the compiler does not recognise as `M`.
type Successor<B, M> = <<M as Tree<B>>::On<Autodiff<B>> as Tree<Autodiff<B>>>::On<B>;

/// Returns the model with the buffers of its successor, in the dtypes of the model.
fn with_buffers<B: Backend, M: Tree<B>>(model: M, successor: Successor<B, M>) -> M {
    let taken = zip_map(model, &successor, |path, mine, theirs| match mine.dtype() {
        dtype if path.is_buffer() && dtype.is_float() => theirs.cast_float(dtype.into()),
        _ if path.is_buffer() => theirs,
        _ => mine,
    });
    taken.expect("a model and its successor have one structure")
}

/// Adds two trees of gradients, in f32 if they are 16-bit.
pub(crate) fn sum<B: Backend, M: Tree<B>>(left: M, right: M) -> M {
    let [sum, _] = map_together([left, right], |_, [x, y]: [AnyArray<B>; 2]| {
        let absent = y.clone().into_absent();
        if !x.is_present() || !x.dtype().is_float() {
            return [x, absent];
        }
        [x.widen().try_add(y.widen()).expect("gradients of one model"), absent]
    })
    .expect("gradients of one model");
    sum
}
