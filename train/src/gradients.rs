use burn::tensor::{FloatDType, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_distributed::{Communicator, OverlappedSum, ReduceOptions};
use grove_transform::GradOptions;
use grove_tree::{AnyArray, Array, Key, Path, Tree, cast, map_together, zip_map};
use std::sync::Arc;

use crate::{Outcome, StepOptions, outcome::Measured, ranks};

/// Gradients and measurements of one batch.
pub(crate) struct Gradients<B: Backend, M: Tree<B>> {
    /// Of the loss, or of the loss times a scale.
    pub(crate) grads: M,
    /// The model with the new buffers.
    pub(crate) successor: Option<M>,
    pub(crate) measured: Measured<B>,
    /// See [`Outcome::weight`].
    pub(crate) weight: f64,
    /// The sums of the gradients over all ranks, where they are under way already.
    pub(crate) sums: Option<Arc<OverlappedSum>>,
}

/// The part of a rank in a batch.
#[derive(Clone, Copy)]
pub(crate) struct RankPart<'a> {
    pub(crate) ranks: &'a Communicator,
    /// Its examples.
    pub(crate) examples: usize,
    /// True if the batch is the only one of its step, so that its gradients may leave at once.
    pub(crate) whole_step: bool,
}

/// Bytes of a bucket that leaves during the backward pass: small enough that most leave before its end, and larger on more ranks, to
/// each of which it is a message.
fn early_bucket(ranks: usize) -> usize {
    ((4 << 20) * (ranks / 32).max(1)).min(ReduceOptions::default().bucket_bytes)
}

/// The gradients of the loss, or of the loss times a factor, `[1]`. On several ranks, of which this one has a part of the batch,
/// they are its share of the mean over all ranks, and so is what is measured; the weight is that of all ranks.
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
    // A device that computes behind the host's back would be waited for at every gradient; and a scaled gradient is not summed.
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
        // Before the backward pass, in which layers add gradients of all ranks.
        let scaled = if share == 1.0 { scaled } else { scaled.mul_scalar(share) };
        (scaled, (Array::new(loss), successor, metrics))
    });
    let successor = successor.map(|successor| with_buffers(model.clone(), successor));
    let measured = (loss, others);
    let (grads, measured) = if share == 1.0 { (grads, measured) } else { ranks::scaled(grads, measured, share) };
    Gradients { grads, successor, measured, weight, sums }
}

/// The share of a part of a batch in the whole, and the weight of the whole.
pub(crate) fn shared(weight: Option<f64>, part: Option<RankPart<'_>>) -> (f64, f64) {
    match (weight, part) {
        (weight, None) => (1.0, weight.unwrap_or(1.0)),
        (Some(_), Some(RankPart { ranks, examples: 0, .. })) => ranks::share(0.0, ranks),
        (Some(weight), Some(RankPart { ranks, .. })) => ranks::share(weight, ranks),
        // A batch whose weight is not said counts the same as the others.
        (None, Some(RankPart { ranks, examples, .. })) => (ranks::share(examples as f64, ranks).0, 1.0),
    }
}

/// A model as it comes back from the differentiating backend: the compiler does not know that it is an `M`.
type Successor<B, M> = <<M as Tree<B>>::On<Autodiff<B>> as Tree<Autodiff<B>>>::On<B>;

/// The model with the buffers of its successor.
fn with_buffers<B: Backend, M: Tree<B>>(model: M, successor: Successor<B, M>) -> M {
    let taken = zip_map(model, &successor, |path, mine, theirs| match mine.dtype() {
        dtype if path.is_buffer() && dtype.is_float() => theirs.cast_float(dtype.into()),
        _ if path.is_buffer() => theirs,
        _ => mine,
    });
    taken.expect("a model and its successor have one structure")
}

/// The sum of two trees of gradients, in f32 where they have 16 bits.
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
