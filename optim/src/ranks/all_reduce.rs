use grove_backend::Backend;
use grove_distributed::{Communicator, ReduceOptions, Wire};
use grove_tree::Tree;

use crate::GradientTransformation;

/// See [`all_reduce_gradients`].
#[derive(Clone, Debug)]
pub struct AllReduceGradients {
    comm: Communicator,
    options: ReduceOptions,
}

/// Replaces the gradients of this rank by their means over all ranks. As the first part of a chain, this is
/// data-parallel training.
///
/// `chain((all_reduce_gradients(&comm), clip_by_global_norm(1.0), adamw(..)))`. If a collective fails, the job ends
/// with an error message; see [`Communicator::end_job`].
pub fn all_reduce_gradients(comm: &Communicator) -> AllReduceGradients {
    AllReduceGradients { comm: comm.clone(), options: ReduceOptions::default() }
}

impl AllReduceGradients {
    /// Sets the dtype of the values in transit.
    pub fn wire(mut self, wire: Wire) -> Self {
        self.options.wire = wire;
        self
    }

    /// Sets the size of a bucket in bytes; see [`ReduceOptions`].
    pub fn bucket_bytes(mut self, bytes: usize) -> Self {
        self.options.bucket_bytes = bytes;
        self
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AllReduceGradients {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        match self.options.mean(updates, &self.comm) {
            Ok(updates) => (updates, ()),
            Err(error) => self.comm.end_job(&error),
        }
    }
}
