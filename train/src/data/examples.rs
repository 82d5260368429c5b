//! Examples in memory.

use grove_backend::Backend;
use grove_tree::{AnyArray, Key, Tree, leaf_name, leaves, map};
use std::fmt;

use super::{Data, DataError, Order};
use crate::arrays::integers;

/// Data set of examples in memory: PyTorch's `TensorDataset` and `DataLoader`.
///
/// Batches of arrays are arrays:
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_train::data::{Data, Examples};
/// use grove_tree::{Array, Key};
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let x = Array::<B, 2>::new(Tensor::ones([100, 4], &device));
/// let y = Array::<B, 1, Int>::new(Tensor::zeros([100], &device));
/// let data = Examples::from_arrays((x, y), 32)?.shuffle(Key::new(0));
/// for batch in data.epoch(0) {
///     let (x, y) = batch?;
///     assert_eq!(x.shape()[0], y.shape()[0]); // 32, and 4 in the last batch
/// }
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
///
/// Batches of other examples are vectors, or the results of a [`collate`](Examples::collate) function:
///
/// ```
/// use grove_train::data::{Data, Examples, pad};
/// use grove_tree::Key;
///
/// let sentences: Vec<Vec<u32>> = (1..100).map(|n| vec![7; n % 13 + 1]).collect();
/// let data = Examples::new(sentences, 8)?.shuffle(Key::new(0)).bucket(Vec::len, 4)?;
/// let data = data.collate(|batch| pad(&batch, 0));
/// assert_eq!(data.epoch(0).count(), 13);
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
#[doc(alias = "DataLoader")]
pub struct Examples<T, Batch> {
    items: Vec<T>,
    order: Order,
    load: Box<Load<T, Batch>>,
}

/// Makes a batch of the items of these indices.
type Load<T, Batch> = dyn Fn(&[T], &[usize]) -> Result<Batch, DataError> + Send + Sync;

impl<T: Clone + 'static> Examples<T, Vec<T>> {
    /// Creates a data set in the given order, with a smaller last batch if necessary.
    ///
    /// - `batch_size`: number of examples in a batch.
    ///
    /// # Errors
    /// If there are no items, or the batch size is 0.
    pub fn new(items: Vec<T>, batch_size: usize) -> Result<Self, DataError> {
        let load = |items: &[T], batch: &[usize]| Ok(batch.iter().map(|&example| items[example].clone()).collect());
        Ok(Self { order: Order::new(items.len(), batch_size)?, items, load: Box::new(load) })
    }

    /// Creates a data set that batches examples of similar `length` together and shuffles them in each epoch; see
    /// [`Order::bucket`].
    ///
    /// # Errors
    /// If there are no items, or the batch size is 0.
    pub fn bucketed(
        items: Vec<T>,
        batch_size: usize,
        length: impl Fn(&T) -> usize,
        key: Key,
    ) -> Result<Self, DataError> {
        Self::new(items, batch_size)?.shuffle(key).bucket(length, POOL)
    }
}

/// Default pool size of [`Examples::bucketed`], in batches.
const POOL: usize = 50;

impl<T: Send + Sync + 'static> Examples<usize, T> {
    /// Creates a data set of the rows of arrays, such as inputs and labels: a tree of arrays whose first axis has the
    /// examples. A batch is a tree of the same type, on the same device. The items are the indices of the rows.
    ///
    /// # Errors
    /// If an array has no values, two arrays differ in their first axis, there are no rows, or the batch size is 0.
    #[doc(alias = "TensorDataset")]
    pub fn from_arrays<B: Backend>(arrays: T, batch_size: usize) -> Result<Self, DataError>
    where
        T: Tree<B>,
    {
        let mut first: Option<(String, usize)> = None;
        for (path, leaf) in leaves(&arrays) {
            let (name, rows) = (leaf_name("array", &path), leaf.shape().first().copied().unwrap_or(0));
            if !leaf.is_present() {
                return Err(DataError::other(format!("the {name} has no values: load them before making a data set")));
            }
            let (other, expected) = first.get_or_insert_with(|| (name.clone(), rows));
            if rows != *expected {
                return Err(DataError::other(format!(
                    "the {name} has {rows} rows, but the {other} has {expected}: give arrays with one row for each \
                     example"
                )));
            }
        }
        let rows = first.map_or(0, |(_, rows)| rows);
        let load = move |_: &[usize], batch: &[usize]| Ok(map(arrays.clone(), |leaf| rows_of(leaf, batch)));
        Ok(Self { items: (0..rows).collect(), order: Order::new(rows, batch_size)?, load: Box::new(load) })
    }
}

fn rows_of<B: Backend>(leaf: AnyArray<B>, rows: &[usize]) -> AnyArray<B> {
    let indices = rows.iter().map(|&row| row as i64).collect();
    let device = leaf.device().unwrap_or_default();
    leaf.take(&integers(indices, &device).val())
}

impl<T: 'static, Batch: 'static> Examples<T, Batch> {
    /// Replaces each batch by the result of a function, PyTorch's `collate_fn`.
    pub fn collate<C>(self, f: impl Fn(Batch) -> C + Send + Sync + 'static) -> Examples<T, C> {
        self.try_collate(move |batch| Ok(f(batch)))
    }

    /// Like [`collate`](Examples::collate), with a function that can fail, such as one that reads files.
    pub fn try_collate<C>(self, f: impl Fn(Batch) -> Result<C, DataError> + Send + Sync + 'static) -> Examples<T, C> {
        let Self { items, order, load } = self;
        Examples { items, order, load: Box::new(move |items, batch| f(load(items, batch)?)) }
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

impl<T: Send + Sync + 'static, Batch: Send + 'static> Data for Examples<T, Batch> {
    type Batch = Batch;

    fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.order.batches(epoch)
    }

    fn batches_per_epoch(&self) -> usize {
        self.order.batches_per_epoch()
    }

    fn load(&self, _epoch: u64, examples: &[usize]) -> Result<Batch, DataError> {
        (self.load)(&self.items, examples)
    }
}

impl<T, Batch> fmt::Debug for Examples<T, Batch> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Examples").field("items", &self.items.len()).field("order", &self.order).finish_non_exhaustive()
    }
}
