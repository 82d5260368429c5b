//! The trait of everything that is trained on.

use super::DataError;

/// A data set: examples, grouped into new batches in every epoch.
///
/// The batches of an epoch are a pure function of the data, its key and the epoch, so that a run that is resumed
/// sees the batches that it would have seen. An implementation usually holds an [`Order`](super::Order) and answers
/// the first two functions with it.
pub trait Data: Send + Sync + 'static {
    /// A batch in the host's memory, which the training loop moves to a device.
    type Batch: Send + 'static;

    /// The batches of an epoch, each the indices of its examples.
    fn order(&self, epoch: u64) -> Vec<Vec<usize>>;

    /// The number of batches in an epoch, the same for all epochs. Cheap.
    fn batches_per_epoch(&self) -> usize;

    /// One batch of an epoch; `examples` is one item of [`order`](Data::order) for the same epoch.
    ///
    /// # Errors
    /// Whatever reading or decoding an example said; [`DataError::other`] wraps it.
    fn load(&self, epoch: u64, examples: &[usize]) -> Result<Self::Batch, DataError>;
}

/// The batches of one epoch in order, each loaded when it is asked for; for evaluation.
///
/// ```
/// use grove_train::data::{Examples, epoch};
///
/// let numbers = Examples::new(vec![1, 2, 3], 2, |batch: &[&i32]| batch.iter().copied().sum::<i32>())?;
/// let sums: Vec<i32> = epoch(&numbers, 0).collect::<Result<_, _>>()?;
/// assert_eq!(sums, [3, 3]);
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
pub fn epoch<D: Data>(data: &D, epoch: u64) -> impl Iterator<Item = Result<D::Batch, DataError>> {
    data.order(epoch).into_iter().map(move |examples| data.load(epoch, &examples))
}
