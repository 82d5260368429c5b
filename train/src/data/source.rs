//! The trait of data sets.

use super::DataError;

/// Data set: examples, grouped into new batches in each epoch.
///
/// The batches of an epoch are a pure function of the data, its key and the epoch, so a resumed run sees the batches
/// that it would have seen. An implementation usually holds an [`Order`](super::Order) and implements the first two
/// methods with it.
///
/// ```
/// use grove_train::data::{Data, DataError, Order};
///
/// /// The squares of some numbers.
/// struct Squares(Order);
///
/// impl Data for Squares {
///     type Batch = Vec<usize>;
///
///     fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
///         self.0.batches(epoch)
///     }
///
///     fn batches_per_epoch(&self) -> usize {
///         self.0.batches_per_epoch()
///     }
///
///     fn load(&self, _epoch: u64, examples: &[usize]) -> Result<Vec<usize>, DataError> {
///         Ok(examples.iter().map(|i| i * i).collect())
///     }
/// }
///
/// let squares = Squares(Order::new(10, 4)?);
/// assert_eq!(squares.epoch(0).next().expect("a batch")?, [0, 1, 4, 9]);
/// # Ok::<(), DataError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a data set",
    label = "no `Data`",
    note = "`Examples::from_arrays(arrays, batch_size)` makes a data set of arrays, and `Examples::new(items, batch_size)` of a \
            vector"
)]
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

    /// Iterates over the batches of one epoch in order, and loads each on demand.
    ///
    /// ```
    /// use grove_train::data::{Data, Examples};
    ///
    /// let numbers = Examples::new(vec![1, 2, 3], 2)?;
    /// let batches: Vec<Vec<i32>> = numbers.epoch(0).collect::<Result<_, _>>()?;
    /// assert_eq!(batches, [vec![1, 2], vec![3]]);
    /// # Ok::<(), grove_train::data::DataError>(())
    /// ```
    fn epoch(&self, epoch: u64) -> impl Iterator<Item = Result<Self::Batch, DataError>>
    where
        Self: Sized,
    {
        self.order(epoch).into_iter().map(move |examples| self.load(epoch, &examples))
    }
}
