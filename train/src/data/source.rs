//! The trait of data sets.

use super::DataError;

/// Data set: examples, grouped into new batches in each epoch.
///
/// The batches of an epoch are a pure function of the data, its key and the epoch, so a resumed run sees the batches
/// that it would have seen. An implementation usually holds an [`Order`](super::Order) and implements the first two
/// methods with it.
pub trait Data: Send + Sync + 'static {
    /// Type of a batch in host memory, which the training loop moves to a device.
    type Batch: Send + 'static;

    /// Returns the batches of an epoch as indices of examples.
    fn order(&self, epoch: u64) -> Vec<Vec<usize>>;

    /// Number of batches in an epoch, the same for all epochs. Must be cheap.
    fn batches_per_epoch(&self) -> usize;

    /// Loads one batch of an epoch; `examples` is one item of [`order`](Data::order) for the same epoch.
    ///
    /// # Errors
    /// Any error of reading or decoding an example; [`DataError::other`] wraps it.
    fn load(&self, epoch: u64, examples: &[usize]) -> Result<Self::Batch, DataError>;
}

/// Iterates over the batches of one epoch in order, and loads each on demand; for evaluation.
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
