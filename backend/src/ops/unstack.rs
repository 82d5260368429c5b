//! Taking a tensor apart along its first axis, with a gradient that costs one copy.

use burn::tensor::{Shape, Slice, TensorMetadata, ops::FloatTensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use std::sync::{Arc, Mutex, PoisonError};

use super::Backend;

/// The rows of `[n, …]`, each `[1, …]`.
pub(super) fn rows<B: Backend>(x: FloatTensor<B>) -> Vec<FloatTensor<B>> {
    let shape = x.shape();
    let mut slices = vec![Slice::full(); shape.num_dims()];
    let row = |i| {
        slices[0] = Slice::from(i..i + 1);
        B::float_slice(x.clone(), &slices)
    };
    (0..shape[0]).map(row).collect()
}

/// The gradients of the rows, which [`Row`]s leave here for [`Whole`].
type Slots<B> = Arc<Mutex<Vec<Option<FloatTensor<B>>>>>;

/// What is taken apart. Burn's own slices would each hand it a gradient as large as itself, to be added up; here the
/// rows leave theirs in slots, and this step, which the graph runs after all rows because it is their parent, puts them
/// together.
#[derive(Debug)]
struct Whole;

impl<B: Backend> Backward<B, 1> for Whole {
    type State = (Slots<B>, Shape);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let ((slots, row), [parent]) = (ops.state, ops.parents);
        let slots = std::mem::take(&mut *slots.lock().unwrap_or_else(PoisonError::into_inner));
        // This step is run only if a row has been.
        let (Some(some), Some(parent)) = (slots.iter().flatten().next(), parent) else { return };
        let zeros = B::float_zeros(row, &B::float_device(some), some.dtype().into());
        let slots = slots.into_iter().map(|grad| grad.unwrap_or_else(|| zeros.clone())).collect();
        grads.register::<B>(parent.id, B::float_cat(slots, 0));
    }
}

#[derive(Debug)]
struct Row;

impl<B: Backend> Backward<B, 1> for Row {
    type State = (Slots<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (slots, index) = ops.state;
        slots.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(grads.consume::<B>(&ops.node));
    }
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
) -> Vec<FloatTensor<Autodiff<B, C>>> {
    let rows = B::unstack(x.primitive.clone());
    let mut row = x.primitive.shape();
    row[0] = 1;
    let slots: Slots<B> = Arc::new(Mutex::new(vec![None; rows.len()]));
    let whole: FloatTensor<Autodiff<B, C>> = match Whole.prepare::<C>([x.node]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((slots.clone(), row), x.primitive),
        OpsKind::UnTracked(step) => step.finish(x.primitive),
    };
    let track = |(i, row)| match Row.prepare::<C>([whole.node.clone()]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((slots.clone(), i), row),
        OpsKind::UnTracked(step) => step.finish(row),
    };
    rows.into_iter().enumerate().map(track).collect()
}
