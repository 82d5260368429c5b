//! Graph tensors of a differentiating backend, and operations with several outputs.

use burn::tensor::{backend::AutodiffBackend, ops::FloatTensor};
use burn_autodiff::{
    NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use std::sync::{Arc, Mutex, PoisonError};

use super::{AnyTensor, Backend, Values, Wanted, awaited, precision::cast};
use crate::Autodiff;

/// Removes the graph nodes from tensors.
pub(super) fn inner<B: Backend, C: CheckpointStrategy>(values: Values<Autodiff<B, C>>) -> Values<B> {
    let device = values.given_device().cloned();
    values.into_values().into_iter().map(|value| value.map(inner_value)).collect::<Values<B>>().on_device(device)
}

/// Removes the graph node from a tensor.
pub(super) fn inner_value<B: Backend, C: CheckpointStrategy>(value: AnyTensor<Autodiff<B, C>>) -> AnyTensor<B> {
    match value {
        AnyTensor::Float(x) => AnyTensor::Float(x.primitive),
        AnyTensor::Int(x) => AnyTensor::Int(x),
        AnyTensor::Bool(x) => AnyTensor::Bool(x),
    }
}

/// Wraps tensors without gradients.
pub(super) fn untracked<B: Backend, C: CheckpointStrategy>(values: Values<B>) -> Values<Autodiff<B, C>> {
    values.into_values().into_iter().map(|value| value.map(lifted)).collect()
}

/// Wraps a tensor without a gradient.
pub(super) fn lifted<B: Backend, C: CheckpointStrategy>(value: AnyTensor<B>) -> AnyTensor<Autodiff<B, C>> {
    match value {
        AnyTensor::Float(x) => AnyTensor::Float(<Autodiff<B, C> as AutodiffBackend>::from_inner(x)),
        AnyTensor::Int(x) => AnyTensor::Int(x),
        AnyTensor::Bool(x) => AnyTensor::Bool(x),
    }
}

/// Adds the computed gradient of the input at a position, if any, to the gradients of its node, in the input's dtype.
pub(super) fn register_grad<B: Backend>(
    grads: &mut Gradients,
    node: NodeId,
    computed: &mut Values<B>,
    position: usize,
    wanted: &Wanted,
) {
    if let Some(spec) = wanted.get(position)
        && let Some(grad) = computed.take_optional_float(position)
    {
        let grad = cast::<B>(grad, spec.dtype);
        awaited::tell::<B>(node, &grad);
        grads.register::<B>(node, grad);
    }
}

/// Gradients of the outputs of an operation whose derivative needs all of them, stored by its [`Part`]s.
#[derive(Clone, Debug)]
pub(super) struct Slots<B: Backend>(Arc<Mutex<Vec<Option<FloatTensor<B>>>>>);

impl<B: Backend> Slots<B> {
    /// Creates an empty slot for each output.
    pub(super) fn new(count: usize) -> Self {
        Self(Arc::new(Mutex::new(vec![None; count])))
    }

    /// Takes the gradients.
    pub(super) fn take(&self) -> Vec<Option<FloatTensor<B>>> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records an output as part of `whole`, the tensor with the operation's node.
    pub(super) fn track<C: CheckpointStrategy>(
        &self,
        whole: &FloatTensor<Autodiff<B, C>>,
        index: usize,
        output: FloatTensor<B>,
    ) -> FloatTensor<Autodiff<B, C>> {
        match Part.prepare::<C>([whole.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((self.clone(), index), output),
            OpsKind::UnTracked(step) => step.finish(output),
        }
    }
}

/// Backward step of one of several outputs. Its parent is the step of the operation, which the graph runs after all parts.
#[derive(Debug)]
struct Part;

impl<B: Backend> Backward<B, 1> for Part {
    type State = (Slots<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (slots, index) = ops.state;
        slots.0.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(grads.consume::<B>(&ops.node));
    }
}
