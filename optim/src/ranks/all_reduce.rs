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

/// Replaces the gradients of this rank by their means over all ranks: data parallelism as the first link of a chain.
///
/// `chain((all_reduce_gradients(&comm), clip_by_global_norm(1.0), adamw(..)))`. Where a collective fails the link ends the job,
/// with a sentence; see [`Communicator::end_job`].
pub fn all_reduce_gradients(comm: &Communicator) -> AllReduceGradients {
    AllReduceGradients { comm: comm.clone(), options: ReduceOptions::default() }
}

impl AllReduceGradients {
    /// Type of the values on their way.
    pub fn wire(mut self, wire: Wire) -> Self {
        self.options.wire = wire;
        self
    }

    /// Bytes of a bucket; see [`ReduceOptions`].
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
