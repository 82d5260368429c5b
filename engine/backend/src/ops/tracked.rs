//! Graph tensors of a differentiating backend, and operations with several outputs.

use burn::tensor::{backend::AutodiffBackend, ops::FloatTensor};
use burn_autodiff::{
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops},
};
use std::sync::{Arc, Mutex, PoisonError};

use super::{AnyTensor, Backend, Values};
use crate::Autodiff;

/// Removes the graph nodes from tensors.
pub(super) fn inner<B: Backend, C: CheckpointStrategy>(values: Values<Autodiff<B, C>>) -> Values<B> {
    let device = values.given_device().cloned();
    let inner = |value: AnyTensor<Autodiff<B, C>>| match value {
        AnyTensor::Float(x) => AnyTensor::Float(x.primitive),
        AnyTensor::Int(x) => AnyTensor::Int(x),
        AnyTensor::Bool(x) => AnyTensor::Bool(x),
    };
    values.into_values().into_iter().map(|value| value.map(inner)).collect::<Values<B>>().on_device(device)
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

/// Gradients of the outputs of an operation whose derivative needs all of them, stored by its [`Part`]s.
pub(super) type Slots<B> = Arc<Mutex<Vec<Option<FloatTensor<B>>>>>;

/// Backward step of one of several outputs. Its parent is the step of the operation, which the graph runs after all parts.
#[derive(Debug)]
pub(super) struct Part;

impl<B: Backend> Backward<B, 1> for Part {
    type State = (Slots<B>, usize);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (slots, index) = ops.state;
        slots.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(grads.consume::<B>(&ops.node));
    }
}
