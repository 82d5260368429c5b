//! Examples in memory.

use std::fmt;

use grove_tree::Key;

use super::{Data, DataError, Order};

/// Data set of examples in memory, with a function that collates them into batches.
///
/// The examples may also describe what to load, such as paths of images; `collate` then loads them, and
/// [`Examples::fallible`] allows it to fail.
///
/// ```
/// use grove_train::data::{Examples, epoch, pad};
/// use grove_tree::Key;
///
/// let sentences: Vec<Vec<u32>> = (1..100).map(|n| vec![7; n % 13 + 1]).collect();
/// let collate = |batch: &[&Vec<u32>]| pad(&batch.iter().map(|ids| &ids[..]).collect::<Vec<_>>(), 0);
/// let data = Examples::new(sentences, 8, collate)?.shuffle(Key::new(0)).bucket(Vec::len, 4)?;
/// assert_eq!(epoch(&data, 0).count(), 13);
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
pub struct Examples<T, Batch> {
    items: Vec<T>,
    order: Order,
    collate: Box<Collate<T, Batch>>,
}

type Collate<T, Batch> = dyn Fn(&[&T]) -> Result<Batch, DataError> + Send + Sync;

impl<T, Batch> Examples<T, Batch> {
    /// Creates a data set in the given order, with a smaller last batch if necessary.
    ///
    /// - `batch_size`: number of examples in a batch.
    /// - `collate`: makes a batch from its examples; never called with an empty slice.
    ///
    /// # Errors
    /// If there are no items, or the batch size is 0.
    pub fn new(
        items: Vec<T>,
        batch_size: usize,
        collate: impl Fn(&[&T]) -> Batch + Send + Sync + 'static,
    ) -> Result<Self, DataError> {
        Self::fallible(items, batch_size, move |batch| Ok(collate(batch)))
    }

    /// As [`new`](Examples::new), with a `collate` that can fail.
    ///
    /// # Errors
    /// If there are no items, or the batch size is 0.
    pub fn fallible(
        items: Vec<T>,
        batch_size: usize,
        collate: impl Fn(&[&T]) -> Result<Batch, DataError> + Send + Sync + 'static,
    ) -> Result<Self, DataError> {
        Ok(Self { order: Order::new(items.len(), batch_size)?, items, collate: Box::new(collate) })
    }

    /// Shuffles the examples in each epoch; see [`Order::shuffle`].
    pub fn shuffle(self, key: Key) -> Self {
        Self { order: self.order.shuffle(key), ..self }
    }

    /// Drops the incomplete last batch; see [`Order::drop_last`].
    ///
    /// # Errors
    /// If the batch size exceeds the number of examples.
    pub fn drop_last(self) -> Result<Self, DataError> {
        Ok(Self { order: self.order.drop_last()?, ..self })
    }

    /// Batches examples of similar `length` together, from pools of `pool` batches; see [`Order::bucket`].
    ///
    /// # Errors
    /// If `pool` is 0.
    pub fn bucket(self, length: impl Fn(&T) -> usize, pool: usize) -> Result<Self, DataError> {
        let lengths = self.items.iter().map(length).collect();
        Ok(Self { order: self.order.bucket(lengths, pool)?, ..self })
    }

    /// Returns the examples in their original order.
    pub fn items(&self) -> &[T] {
        &self.items
    }
}

/// Default pool size of [`Examples::bucketed`], in batches.
const POOL: usize = 50;

impl<T: Clone> Examples<T, Vec<T>> {
    /// Creates a data set that batches examples of similar `length` together and shuffles them in each epoch; see
    /// [`Order::bucket`]. A batch is a vector of its examples.
    ///
    /// # Errors
    /// If there are no items, or the batch size is 0.
    pub fn bucketed(
        items: Vec<T>,
        batch_size: usize,
        length: impl Fn(&T) -> usize,
        key: Key,
    ) -> Result<Self, DataError> {
        let collate = |batch: &[&T]| batch.iter().map(|&item| item.clone()).collect();
        Self::new(items, batch_size, collate)?.shuffle(key).bucket(length, POOL)
    }
}

impl<T: Send + Sync + 'static, Batch: Send + 'static> Data for Examples<T, Batch> {
    type Batch = Batch;

    fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.order.batches(epoch)
    }

    fn batches_per_epoch(&self) -> usize {
        self.order.batches_per_epoch()
    }

    fn load(&self, _epoch: u64, examples: &[usize]) -> Result<Batch, DataError> {
        let batch: Vec<&T> = examples.iter().map(|&example| &self.items[example]).collect();
        (self.collate)(&batch)
    }
}

impl<T, Batch> fmt::Debug for Examples<T, Batch> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Examples").field("items", &self.items.len()).field("order", &self.order).finish_non_exhaustive()
    }
}
