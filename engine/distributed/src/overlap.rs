use grove_backend::{AnyTensor, Backend};
use grove_communicator::{Communicator, Result};
use grove_tree::{AnyArray, Path, Tree, map, try_map_with_path};
use std::{
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    ReduceOptions,
    buckets::{BucketTimes, Buckets},
    trees::with_values,
};

/// Sums of gradients over all ranks, overlapped with the backward pass.
///
/// Gradients are [added](Self::add) as they become complete, in any order; `grove_transform::GradOptions::on_gradient` reports
/// most of them early. Each bucket is sent after its last gradient, and [`finish`](Self::finish) adds the missing ones. The sums
/// are bit for bit those of [`all_reduce_sum`](crate::all_reduce_sum).
///
/// Every rank must create one for the same leaves before it computes gradients, and finish it.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_distributed::{OverlappedSum, ReduceOptions, world};
/// use grove_transform::GradOptions;
/// use grove_tree::Array;
/// use std::sync::Arc;
/// # type B = burn_flex::Flex;
///
/// let comm = world()?;
/// let model = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let sums = Arc::new(OverlappedSum::new(&model, |_, leaf| leaf.dtype().is_float(), &comm, ReduceOptions::default()));
/// let early = sums.clone();
/// let options = GradOptions::new().on_gradient(move |leaf, gradient| early.add(leaf, gradient));
/// let (_loss, grads, ()) = options.value_and_grad_aux(&model, |model| (model.val().square().sum(), ()));
/// let grads = sums.finish(grads)?;
/// assert_eq!(grads.val().into_data().to_vec::<f32>().unwrap(), [2.0, 4.0]);
/// # Ok::<(), grove_distributed::CommError>(())
/// ```
pub struct OverlappedSum {
    comm: Communicator,
    buckets: Mutex<Option<Buckets>>,
    times: Mutex<Vec<BucketTimes>>,
}

impl OverlappedSum {
    /// Creates the sums for the present leaves of a tree that pass a filter, all floating-point. The last leaves, whose gradients
    /// are complete first, are in the first bucket.
    pub fn new<B: Backend, P: Tree<B>>(
        tree: &P,
        takes_part: impl Fn(&Path, &AnyArray<B>) -> bool,
        comm: &Communicator,
        options: ReduceOptions,
    ) -> Self {
        let mut leaves = Vec::new();
        tree.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
            let part = leaf.is_present() && leaf.dtype().is_float() && takes_part(path, leaf);
            leaves.push(part.then(|| (leaf.len(), leaf.dtype())));
        });
        let buckets = comm.is_shared().then(|| {
            let order = (0..leaves.len()).rev();
            Buckets::new(&leaves, order, comm, (options.bucket_bytes, options.wire), 1.0)
        });
        Self { comm: comm.clone(), buckets: Mutex::new(buckets), times: Mutex::default() }
    }

    /// Excludes the gradients of this rank, even if they are not finite. Must be called before any gradient is added.
    pub fn leave_out(&self) {
        if let Some(buckets) = &mut *self.lock() {
            buckets.factor = 0.0;
        }
    }

    /// Adds the gradient of a leaf, by its index among all leaves of the tree. Does nothing if the leaf takes no part or was
    /// added before.
    ///
    /// If a collective fails, the job ends with an error message; see [`Communicator::end_job`].
    pub fn add<B: Backend>(&self, leaf: usize, gradient: AnyTensor<B>) {
        if let Some(buckets) = &mut *self.lock() {
            self.fill(buckets, leaf, Some(gradient)).unwrap_or_else(|error| self.comm.end_job(&error));
        }
    }

    /// Returns the sums of all leaves that take part. The other leaves stay unchanged.
    ///
    /// # Errors
    /// [`CommError`](crate::CommError).
    pub fn finish<B: Backend, P: Tree<B>>(&self, grads: P) -> Result<P> {
        let Some(mut buckets) = self.lock().take() else { return Ok(grads) };
        let (missing, mut next) = (buckets.missing(), 0..);
        let grads = try_map_with_path(grads, |_, leaf| -> Result<AnyArray<B>> {
            let number = next.next().unwrap_or_default();
            if missing.binary_search(&number).is_ok() {
                self.fill(&mut buckets, number, leaf.value().cloned())?;
            }
            Ok(leaf)
        })?;
        let (sums, times) = buckets.wait(1.0)?;
        *self.times.lock().unwrap_or_else(PoisonError::into_inner) = times;
        let mut sums = sums.into_iter();
        Ok(map(grads, |leaf| match (sums.next().flatten(), leaf.device()) {
            (Some(sum), Some(device)) => with_values(sum, &leaf, &device),
            _ => leaf,
        }))
    }

    /// Returns the transfer times of the buckets, once the sums are complete.
    pub fn times(&self) -> Vec<BucketTimes> {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fill<B: Backend>(&self, buckets: &mut Buckets, leaf: usize, gradient: Option<AnyTensor<B>>) -> Result<()> {
        // A gradient that is not finite times 0 would be NaN.
        let data = gradient.filter(|_| buckets.factor != 0.0).map(AnyTensor::into_data);
        buckets.fill(leaf, data.as_ref())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Buckets>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for OverlappedSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverlappedSum").field("comm", &self.comm).finish_non_exhaustive()
    }
}
