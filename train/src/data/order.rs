//! Order and batching of examples.

use grove_tree::Key;

use super::DataError;

/// The batches of each epoch, as a function of the key and the epoch.
///
/// By default, examples are in their original order and the last batch may be smaller.
///
/// ```
/// use grove_train::data::Order;
/// use grove_tree::Key;
///
/// assert_eq!(Order::new(5, 2)?.batches(0), [vec![0, 1], vec![2, 3], vec![4]]);
///
/// let order = Order::new(1000, 8)?.shuffle(Key::new(1)).drop_last()?;
/// assert_eq!(order.batches(3), order.batches(3));
/// assert_ne!(order.batches(3), order.batches(4));
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Order {
    examples: usize,
    batch_size: usize,
    shuffle: Option<Key>,
    drop_last: bool,
    buckets: Option<Buckets>,
}

#[derive(Clone, Debug)]
struct Buckets {
    lengths: Vec<usize>,
    /// Number of batches in a pool.
    pool: usize,
}

impl Order {
    /// Batches of `batch_size` examples in their original order. The last batch may be smaller.
    ///
    /// # Errors
    /// If there are no examples or more than 2^32, or the batch size is 0. A batch size beyond the number of examples
    /// makes one batch.
    pub fn new(examples: usize, batch_size: usize) -> Result<Self, DataError> {
        if batch_size == 0 {
            return Err(DataError::Zero { what: "batch size" });
        }
        if examples == 0 {
            return Err(DataError::NoExamples);
        }
        // Permutations use 32-bit indices.
        if examples as u64 > 1 << 32 {
            return Err(DataError::TooMany { examples });
        }
        Ok(Self { examples, batch_size, shuffle: None, drop_last: false, buckets: None })
    }

    /// Shuffles the examples, with a different order in each epoch.
    pub fn shuffle(self, key: Key) -> Self {
        Self { shuffle: Some(key), ..self }
    }

    /// Drops the incomplete last batch. With [`shuffle`](Order::shuffle), different examples are dropped in each epoch.
    ///
    /// # Errors
    /// If the batch size exceeds the number of examples.
    pub fn drop_last(self) -> Result<Self, DataError> {
        let Self { examples, batch_size, .. } = self;
        if batch_size > examples {
            return Err(DataError::BatchTooLarge { batch_size, examples, what: "examples".into() });
        }
        Ok(Self { drop_last: true, ..self })
    }

    /// Batches examples of similar length together, to reduce padding.
    ///
    /// Pools of `pool` batches are taken from the (shuffled) examples, sorted by length and cut into batches; then the
    /// batches are shuffled. A larger pool reduces padding but also randomness; 50 is a good start.
    ///
    /// # Errors
    /// If the number of lengths differs from the number of examples, or `pool` is 0.
    pub fn bucket(self, lengths: Vec<usize>, pool: usize) -> Result<Self, DataError> {
        if lengths.len() != self.examples {
            return Err(DataError::Lengths { lengths: lengths.len(), examples: self.examples });
        }
        if pool == 0 {
            return Err(DataError::Zero { what: "number of batches in a pool" });
        }
        Ok(Self { buckets: Some(Buckets { lengths, pool }), ..self })
    }

    /// Number of examples.
    pub fn examples(&self) -> usize {
        self.examples
    }

    /// Number of batches in an epoch.
    pub fn batches_per_epoch(&self) -> usize {
        if self.drop_last { self.examples / self.batch_size } else { self.examples.div_ceil(self.batch_size) }
    }

    /// Number of examples of the smallest batch.
    pub fn smallest_batch(&self) -> usize {
        match self.examples % self.batch_size {
            rest if rest > 0 && !self.drop_last => rest,
            _ => self.batch_size.min(self.examples),
        }
    }

    /// Returns the batches of an epoch as indices of examples. Each index occurs once, except those that
    /// [`drop_last`](Order::drop_last) drops.
    ///
    /// A million examples take about a fifth of a second.
    pub fn batches(&self, epoch: u64) -> Vec<Vec<usize>> {
        // Epochs are taken modulo 2^32.
        let keys = self.shuffle.map(|key| key.fold_in(epoch as u32).split());
        let mut order = match keys {
            Some((examples, _)) => examples.permutation(self.examples),
            None => (0..self.examples).collect(),
        };
        if self.drop_last {
            // Before sorting by length, or the longest examples would always be dropped.
            order.truncate(self.batches_per_epoch() * self.batch_size);
        }
        let Some(Buckets { lengths, pool }) = &self.buckets else {
            return self.cut(&order);
        };
        for pool in order.chunks_mut(pool.saturating_mul(self.batch_size)) {
            // A stable sort keeps examples of equal length shuffled.
            pool.sort_by_key(|&example| lengths[example]);
        }
        let mut batches = self.cut(&order);
        match keys {
            Some((_, key)) => {
                key.permutation(batches.len()).into_iter().map(|i| std::mem::take(&mut batches[i])).collect()
            }
            None => batches,
        }
    }

    fn cut(&self, order: &[usize]) -> Vec<Vec<usize>> {
        order.chunks(self.batch_size).map(<[usize]>::to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_invalid_sizes() {
        assert_eq!(Order::new(3, 0).expect_err("no batch").to_string(), "the batch size is 0: it must be at least 1");
        assert!(matches!(Order::new(0, 3), Err(DataError::NoExamples)));
        let error = Order::new(3, 4).and_then(Order::drop_last).expect_err("too large").to_string();
        assert!(error.contains("batch of 4") && error.contains("3 examples"), "{error}");
        let order = Order::new(3, 4).expect("one small batch");
        assert!(matches!(order.clone().bucket(vec![1], 2), Err(DataError::Lengths { .. })));
        assert!(matches!(order.bucket(vec![1; 3], 0), Err(DataError::Zero { .. })));
        #[cfg(target_pointer_width = "64")]
        assert!(matches!(Order::new(usize::MAX, 1), Err(DataError::TooMany { .. })));
    }

    #[test]
    fn smallest_batch_is_the_incomplete_one() {
        for (examples, batch_size) in [(5, 2), (6, 2), (1, 1), (3, 8), (7, 3)] {
            let order = Order::new(examples, batch_size).expect("fits");
            let whole = order.clone().drop_last();
            for order in [Ok(order), whole].into_iter().flatten() {
                let smallest = order.batches(0).iter().map(Vec::len).min();
                assert_eq!(Some(order.smallest_batch()), smallest, "{examples} by {batch_size}");
            }
        }
    }

    #[test]
    fn drop_last_drops_other_examples_in_each_epoch() {
        let order = Order::new(10, 4).expect("fits").shuffle(Key::new(0)).drop_last().expect("fits");
        let left_out = |epoch| -> Vec<usize> {
            let batches = order.batches(epoch).concat();
            (0..10).filter(|example| !batches.contains(example)).collect()
        };
        assert!((0..10).all(|epoch| left_out(epoch).len() == 2));
        assert!((1..10).any(|epoch| left_out(epoch) != left_out(0)));
    }

    #[test]
    fn buckets_of_unshuffled_examples_are_sorted_pools() {
        let order = Order::new(6, 2).expect("fits").bucket(vec![5, 1, 4, 2, 9, 8], 2).expect("fits");
        assert_eq!(order.batches(0), [vec![1, 3], vec![2, 0], vec![5, 4]]);
    }

    #[test]
    fn a_pool_larger_than_memory_is_one_pool() {
        let order = Order::new(3, 2).expect("fits").bucket(vec![3, 2, 1], usize::MAX).expect("fits");
        assert_eq!(order.batches(0), [vec![2, 1], vec![0]]);
    }
}
