//! Operations with a backward pass of their own, for `Autodiff`.

use burn::tensor::{DType, TensorMetadata, ops::FloatTensor};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use std::{fmt::Debug, sync::Arc};

use super::{Backend, precision::cast};

/// The backward pass: what was kept of the forward pass, the gradient of the result, and which inputs' gradients are
/// needed, give those gradients.
type BackwardFn<B, S, const N: usize> = fn(S, FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N];

/// With the types of the inputs' numbers, which are those of their gradients.
#[derive(Debug)]
struct Custom<B: Backend, S: 'static, const N: usize>(BackwardFn<B, S, N>, [DType; N]);

impl<B: Backend, S: Clone + Debug + Send + 'static, const N: usize> Backward<B, N> for Custom<B, S, N> {
    type State = S;

    fn backward(self, ops: Ops<S, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let needs = ops.parents.each_ref().map(Option::is_some);
        let results = (self.0)(ops.state, grad, needs);
        for ((parent, grad), dtype) in ops.parents.into_iter().zip(results).zip(self.1) {
            if let (Some(parent), Some(grad)) = (parent, grad) {
                grads.register::<B>(parent.id, cast::<B>(grad, dtype));
            }
        }
    }
}

/// What keeps inputs' nodes in the graph. They must outlive the computation of a result, which is not in the graph yet: a
/// backward pass on another thread, even of another model, clears away what nobody seems to need.
pub(super) fn alive<B: Backend, C: CheckpointStrategy, const N: usize>(
    inputs: &[FloatTensor<Autodiff<B, C>>; N],
) -> [Arc<NodeId>; N] {
    inputs.each_ref().map(|input| input.rc.clone())
}

/// Computes an operation on the inner backend and puts it into the graph with what has to be kept in order to go back.
/// Nothing of it is recomputed. Each gradient has its input's type of numbers. `compute` is told whether anything need be
/// kept; where nothing need, what it says is not used.
pub(super) fn recorded<B: Backend, C: CheckpointStrategy, S: Clone + Debug + Send + 'static, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
    backward: BackwardFn<B, S, N>,
    compute: impl FnOnce([FloatTensor<B>; N], bool) -> (FloatTensor<B>, Option<S>),
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    let dtypes = inputs.each_ref().map(|input| input.primitive.dtype());
    let prepared = Custom(backward, dtypes).prepare::<C>(nodes).compute_bound().stateful();
    let _alive = alive::<B, C, N>(&inputs);
    let inputs = inputs.map(|input| input.primitive);
    match prepared {
        OpsKind::Tracked(step) => {
            let (output, kept) = compute(inputs, true);
            step.finish(kept.expect("an operation keeps what its backward pass needs"), output)
        }
        OpsKind::UnTracked(step) => step.finish(compute(inputs, false).0),
    }
}
