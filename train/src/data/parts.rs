//! Data sharding: batches divided among the ranks of a job.

use grove_distributed::Communicator;
use std::sync::Arc;

use super::{Data, DataError};

/// A rank's part of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part<T> {
    /// Examples of the part, as a batch.
    pub batch: T,
    /// Number of examples. 0 if the batch has fewer examples than there are ranks, or if no example of the part is
    /// readable. `batch` is then an example of another rank's part, so that this rank can take part in the step; it
    /// must not count.
    pub examples: usize,
}

/// Data set that divides each batch among the ranks of a job. Each rank gets its [`Part`], and each example of a batch
/// goes to one rank. Order and batches are those of the underlying data set, for any number of ranks.
///
/// ```
/// use grove_distributed::Communicator;
/// use grove_train::data::{Data, Examples, Parts};
/// use std::sync::Arc;
///
/// let data = Arc::new(Examples::new((0..7).collect(), 4)?);
/// let of = |comm: &Communicator| Parts::new(data.clone(), comm).epoch(0).collect::<Result<Vec<_>, _>>();
/// let ranks = Communicator::threads(3);
/// let mut last = Vec::new();
/// for comm in &ranks {
///     last.push(of(comm)?.remove(1).batch); // the second of two batches has three examples
/// }
/// assert_eq!(last, [[4], [5], [6]]);
/// # Ok::<(), grove_train::data::DataError>(())
/// ```
pub struct Parts<D> {
    data: Arc<D>,
    ranks: Communicator,
}

impl<D: Data> Parts<D> {
    /// Creates the data set of this rank's parts.
    pub fn new(data: Arc<D>, ranks: &Communicator) -> Self {
        Self { data, ranks: ranks.clone() }
    }

    /// Returns the first readable example of a batch as a part of 0 examples, or `error` if there is none.
    fn borrow(&self, epoch: u64, examples: &[usize], error: DataError) -> Result<Part<D::Batch>, DataError> {
        for example in examples {
            match self.data.load(epoch, std::slice::from_ref(example)) {
                Err(DataError::NoneReadable(_)) => {}
                loaded => return Ok(Part { batch: loaded?, examples: 0 }),
            }
        }
        Err(error)
    }
}

impl<D: Data> Data for Parts<D> {
    type Batch = Part<D::Batch>;

    fn order(&self, epoch: u64) -> Vec<Vec<usize>> {
        self.data.order(epoch)
    }

    fn batches_per_epoch(&self) -> usize {
        self.data.batches_per_epoch()
    }

    fn load(&self, epoch: u64, examples: &[usize]) -> Result<Self::Batch, DataError> {
        let part = self.ranks.part(examples.len(), self.ranks.rank());
        if part.is_empty() {
            return self.borrow(epoch, examples, DataError::NoBatches { epoch });
        }
        match self.data.load(epoch, &examples[part.clone()]) {
            Err(error @ DataError::NoneReadable(_)) => self.borrow(epoch, examples, error),
            loaded => Ok(Part { batch: loaded?, examples: part.len() }),
        }
    }
}
