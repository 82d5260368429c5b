//! Operations of one tensor with a backward pass of their own, for `Autodiff`.

use burn::tensor::ops::FloatTensor;
use burn_autodiff::{
    Autodiff,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, unary},
};
use std::fmt::Debug;

use super::Backend;

/// The backward pass: what was kept of the forward pass and the gradient of the result give the gradient of the input.
type BackwardFn<B, S> = fn(S, FloatTensor<B>) -> FloatTensor<B>;

#[derive(Debug)]
struct Custom<B: Backend, S: 'static>(BackwardFn<B, S>);

impl<B: Backend, S: Clone + Debug + Send + 'static> Backward<B, 1> for Custom<B, S> {
    type State = S;

    fn backward(self, ops: Ops<S, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, grads, |grad| (self.0)(ops.state, grad));
    }
}

/// Computes an operation on the inner backend and puts it into the graph with what has to be kept in order to go back.
/// Nothing of it is recomputed.
pub(super) fn recorded<B: Backend, C: CheckpointStrategy, S: Clone + Debug + Send + 'static>(
    input: FloatTensor<Autodiff<B, C>>,
    backward: BackwardFn<B, S>,
    compute: impl FnOnce(FloatTensor<B>) -> (FloatTensor<B>, S),
) -> FloatTensor<Autodiff<B, C>> {
    let prepared = Custom(backward).prepare::<C>([input.node.clone()]).compute_bound().stateful();
    let (output, kept) = compute(input.primitive);
    match prepared {
        OpsKind::Tracked(step) => step.finish(kept, output),
        OpsKind::UnTracked(step) => step.finish(output),
    }
}
