//! Gradients of leaves as soon as they are complete, while the rest of a backward pass goes on.

use burn::tensor::ops::FloatTensor;
use burn_autodiff::{NodeId, checkpoint::strategy::CheckpointStrategy};
use std::{
    any::Any,
    collections::HashMap,
    fmt,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
};

use super::{AnyTensor, Backend};
use crate::Autodiff;

/// Told of a leaf, by its number, and of its gradient.
pub type GradientListener<B> = Arc<dyn Fn(usize, AnyTensor<B>) + Send + Sync>;

/// Told of an [`AnyTensor`] of some backend.
type Tell = Box<dyn Fn(&dyn Any) + Send + Sync>;

/// The listeners of leaves. A node is of one graph of the process.
static AWAITED: LazyLock<Mutex<HashMap<NodeId, Tell>>> = LazyLock::new(Mutex::default);

fn awaited() -> MutexGuard<'static, HashMap<NodeId, Tell>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gradients that are awaited as long as this lives; see [`await_gradients`].
#[must_use = "gradients are awaited as long as it lives"]
pub struct AwaitedGradients(Vec<NodeId>);

/// Tells a listener of the gradients of leaves as soon as they are complete, on the thread of the backward pass.
///
/// Each leaf has its number. No more than one operation may use it, or what is told is a part of its gradient:
/// [`count_of_holders`] counts them. Those that are not among [`Operation`](super::Operation) and
/// [`Function`](super::Function) tell of nothing.
pub fn await_gradients<'a, B: Backend, C: CheckpointStrategy>(
    leaves: impl IntoIterator<Item = (usize, &'a FloatTensor<Autodiff<B, C>>)>,
    listener: &GradientListener<B>,
) -> AwaitedGradients {
    let mut awaited = awaited();
    let insert = |(number, leaf): (usize, &FloatTensor<Autodiff<B, C>>)| {
        let listener = listener.clone();
        let tell = move |gradient: &dyn Any| {
            if let Some(gradient) = gradient.downcast_ref::<AnyTensor<B>>() {
                listener(number, gradient.clone());
            }
        };
        awaited.insert(leaf.node.id, Box::new(tell));
        leaf.node.id
    };
    AwaitedGradients(leaves.into_iter().map(insert).collect())
}

/// The number of tensors and of operations of a graph that hold the node of a tensor.
pub fn count_of_holders<B: Backend, C: CheckpointStrategy>(x: &FloatTensor<Autodiff<B, C>>) -> usize {
    Arc::strong_count(&x.node)
}

/// Tells of the gradient that the operation of a node has computed for an input.
pub(super) fn tell<B: Backend>(input: NodeId, gradient: &FloatTensor<B>) {
    // Removed, so that the lock is not held meanwhile, and none is told twice.
    let listener = awaited().remove(&input);
    if let Some(listener) = listener {
        listener(&AnyTensor::<B>::Float(gradient.clone()));
    }
}

impl Drop for AwaitedGradients {
    fn drop(&mut self) {
        let mut awaited = awaited();
        for id in &self.0 {
            awaited.remove(id);
        }
    }
}

impl fmt::Debug for AwaitedGradients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AwaitedGradients").field(&self.0.len()).finish()
    }
}
