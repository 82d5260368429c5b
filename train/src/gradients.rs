use burn::tensor::{FloatDType, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_distributed::{OverlappedSum, ReduceOptions};
use grove_transform::GradOptions;
use grove_tree::{AnyArray, Array, Key, Path, Tree, cast, map_together, zip_map};
use std::sync::Arc;

use crate::{
    Outcome, StepOptions,
    outcome::Measured,
    ranks::{Ranks, scaled},
};

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

/// A function that computes the gradients of the loss of a batch, or of the loss times a factor `[1]`.
pub(crate) type GradientFn<'a, B, M, D> = dyn Fn(&M, &D, Key, Option<&Array<B, 1>>, &RankPart) -> Gradients<B, M> + 'a;

/// A rank's part of a batch. The default is the whole batch on a single rank.
#[derive(Default)]
pub(crate) struct RankPart {
    pub(crate) ranks: Ranks,
    /// Number of examples of the part.
    pub(crate) examples: usize,
    /// True if the batch is the only one of its step, so that its gradients can be all-reduced during the backward
    /// pass.
    pub(crate) whole_step: bool,
}

impl RankPart {
    /// Returns the share of this part in the whole batch, and the weight of the whole batch, given the weight of this
    /// part, if the loss function sets it.
    pub(crate) fn share(&self, weight: Option<f64>) -> (f64, f64) {
        match weight {
            // All batches without a weight count the same.
            None => (self.ranks.share(self.examples as f64).0, 1.0),
            Some(_) if self.examples == 0 && self.ranks.is_shared() => self.ranks.share(0.0),
            Some(weight) => self.ranks.share(weight),
        }
    }
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
    part: &RankPart,
) -> Gradients<B, M> {
    let (mut weight, mut share) = (1.0, 1.0);
    // Overlap would wait at every gradient on a device that executes asynchronously; and scaled gradients must be
    // unscaled before the sum.
    let overlaps = part.ranks.is_shared() && part.whole_step && !B::LAZY && !B::FUSES && factor.is_none();
    let sums = overlaps.then(|| {
        let ranks = part.ranks.communicator();
        let takes_part = |path: &Path, leaf: &_| !path.is_buffer() && options.trainable.passes(path, leaf);
        let options = ReduceOptions { bucket_bytes: early_bucket(ranks.size()), ..ReduceOptions::default() };
        Arc::new(OverlappedSum::new(model, takes_part, ranks, options))
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
        (share, weight) = part.share(count);
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
    let (grads, measured) = scaled(grads, (loss, others), share);
    Gradients { grads, successor, measured, weight, sums }
}

/// Type of a model returned from the autodiff backend, which the compiler does not recognise as `M`.
type Successor<B, M> = <<M as Tree<B>>::On<Autodiff<B>> as Tree<Autodiff<B>>>::On<B>;

/// Returns the model with the buffers of its successor, in the dtypes of the model.
fn with_buffers<B: Backend, M: Tree<B>>(model: M, successor: Successor<B, M>) -> M {
    let updated = zip_map(model, &successor, |path, mine, theirs| match mine.dtype() {
        dtype if path.is_buffer() && dtype.is_float() => theirs.cast_float(dtype.into()),
        _ if path.is_buffer() => theirs,
        _ => mine,
    });
    updated.expect("a model and its successor have one structure")
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
