use burn::tensor::{FloatDType, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_distributed::Communicator;
use grove_transform::GradOptions;
use grove_tree::{AnyArray, Array, Key, Tree, cast, map_together, zip_map};

use crate::{Outcome, StepOptions, ranks, step::Measured};

/// Gradients and measurements of one batch.
pub(crate) struct Gradients<B: Backend, M: Tree<B>> {
    /// Of the loss, or of the loss times a scale.
    pub(crate) grads: M,
    /// The model with the new buffers.
    pub(crate) successor: Option<M>,
    pub(crate) measured: Measured<B>,
    /// See [`Outcome::weight`].
    pub(crate) weight: f64,
}

/// The gradients of the loss, or of the loss times a factor, `[1]`. On several ranks, of which this one has a part of so many
/// examples, they are its share of the mean over all ranks, and so is what is measured; the weight is that of all ranks.
pub(crate) fn gradients<B: Backend, M: Tree<B>, D: ?Sized, O: Into<Outcome<B, M>>>(
    model: &M,
    loss_fn: &impl Fn(M::On<Autodiff<B>>, &D, Key) -> O,
    batch: &D,
    key: Key,
    options: &StepOptions<B>,
    factor: Option<&Array<B, 1>>,
    part: Option<(&Communicator, usize)>,
) -> Gradients<B, M> {
    let (mut weight, mut share) = (1.0, 1.0);
    let (_, grads, (loss, successor, others)) =
        GradOptions::new().only(options.trainable.clone()).value_and_grad_aux(model, |model| {
            let model = match options.compute {
                Some(dtype) => cast::<Autodiff<B>, _>(model, dtype),
                None => model,
            };
            let Outcome { loss, successor, metrics, weight: count } = loss_fn(model, batch, key).into();
            (share, weight) = shared(count, part);
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
    Gradients { grads, successor, measured, weight }
}

/// The share of a part of a batch in the whole, and the weight of the whole.
pub(crate) fn shared(weight: Option<f64>, part: Option<(&Communicator, usize)>) -> (f64, f64) {
    match (weight, part) {
        (weight, None) => (1.0, weight.unwrap_or(1.0)),
        (Some(_), Some((ranks, 0))) => ranks::share(0.0, ranks),
        (Some(weight), Some((ranks, _))) => ranks::share(weight, ranks),
        // A batch whose weight is not said counts the same as the others.
        (None, Some((ranks, examples))) => (ranks::share(examples as f64, ranks).0, 1.0),
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
