//! Taking a tensor apart along an axis, with a gradient that costs one copy.

use burn::tensor::{Shape, Slice, TensorMetadata, ops::FloatTensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use std::sync::{Arc, Mutex, PoisonError};

use super::Backend;

/// Equal parts along an axis.
pub(super) fn parts<B: Backend>(x: FloatTensor<B>, count: usize, axis: usize) -> Vec<FloatTensor<B>> {
    let shape = x.shape();
    assert!(count > 0 && shape[axis].is_multiple_of(count), "{count} equal parts of axis {axis} of {shape:?}");
    let size = shape[axis] / count;
    let mut slices = vec![Slice::full(); shape.num_dims()];
    let part = |i| {
        slices[axis] = Slice::from(i * size..(i + 1) * size);
        B::float_slice(x.clone(), &slices)
    };
    (0..count).map(part).collect()
}

/// The gradients of the parts, which [`Part`]s leave here for [`Whole`].
type Slots<B> = Arc<Mutex<Vec<Option<FloatTensor<B>>>>>;

/// What is taken apart. Burn's own slices would each hand it a gradient as large as itself, to be added up; here the
/// parts leave theirs in slots, and this step, which the graph runs after all parts because it is their parent, puts them
/// together.
#[derive(Debug)]
struct Whole;

impl<B: Backend> Backward<B, 1> for Whole {
    /// With the shape of a part, and the axis.
    type State = (Slots<B>, Shape, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let ((slots, shape, axis), [parent]) = (ops.state, ops.parents);
        let slots = std::mem::take(&mut *slots.lock().unwrap_or_else(PoisonError::into_inner));
        // This step is run only if a part has been.
        let (Some(some), Some(parent)) = (slots.iter().flatten().next(), parent) else { return };
        let zeros = || B::float_zeros(shape.clone(), &B::float_device(some), some.dtype().into());
        let zeros = slots.iter().any(Option::is_none).then(zeros);
        let slots =
            slots.into_iter().map(|grad| grad.or_else(|| zeros.clone()).expect("a gradient or zeros")).collect();
        grads.register::<B>(parent.id, B::unchunk(slots, axis));
    }
}

#[derive(Debug)]
struct Part;

impl<B: Backend> Backward<B, 1> for Part {
    type State = (Slots<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (slots, index) = ops.state;
        slots.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(grads.consume::<B>(&ops.node));
    }
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    count: usize,
    axis: usize,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let parts = B::chunk(x.primitive.clone(), count, axis);
    let mut shape = x.primitive.shape();
    shape[axis] /= count;
    let slots: Slots<B> = Arc::new(Mutex::new(vec![None; count]));
    let whole: FloatTensor<Autodiff<B, C>> = match Whole.prepare::<C>([x.node]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((slots.clone(), shape, axis), x.primitive),
        OpsKind::UnTracked(step) => step.finish(x.primitive),
    };
    let track = |(i, part)| match Part.prepare::<C>([whole.node.clone()]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((slots.clone(), i), part),
        OpsKind::UnTracked(step) => step.finish(part),
    };
    parts.into_iter().enumerate().map(track).collect()
}
