//! Gradients of leaves as soon as they are complete, while the backward pass continues.

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

/// Callback with the index of a leaf and its gradient.
pub type GradientListener<B> = Arc<dyn Fn(usize, AnyTensor<B>) + Send + Sync>;

/// Callback with an [`AnyTensor`] of some backend.
type Tell = Box<dyn Fn(&dyn Any) + Send + Sync>;

/// Callbacks by node. Node IDs are unique in the process.
static AWAITED: LazyLock<Mutex<HashMap<NodeId, Tell>>> = LazyLock::new(Mutex::default);

fn awaited() -> MutexGuard<'static, HashMap<NodeId, Tell>> {
    AWAITED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registration of callbacks, which ends when this is dropped; see [`await_gradients`].
#[must_use = "gradients are awaited as long as it lives"]
pub struct AwaitedGradients(Vec<NodeId>);

/// Calls a listener with the gradient of each leaf as soon as that gradient is complete, on the thread of the backward
/// pass.
///
/// Each leaf has an index. At most one operation may use a leaf, otherwise the listener gets only a part of the gradient;
/// [`count_of_holders`] counts the uses. Only operations of [`Operation`](super::Operation) and
/// [`Function`](super::Function) notify.
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

/// Number of tensors and graph operations that hold the node of a tensor.
pub fn count_of_holders<B: Backend, C: CheckpointStrategy>(x: &FloatTensor<Autodiff<B, C>>) -> usize {
    Arc::strong_count(&x.node)
}

/// Notifies the listener of a node, if any, of the gradient that an operation has computed.
pub(super) fn tell<B: Backend>(input: NodeId, gradient: &FloatTensor<B>) {
    // Removed first, so that the lock is not held during the call and each listener is called once.
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
