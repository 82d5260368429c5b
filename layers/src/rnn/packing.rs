use burn::tensor::{BasicOps, Int, Tensor, TensorData};
use grove_backend::Backend;
use std::sync::Arc;

/// Errors of packing sequences into a batch.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// The list of sequences is empty.
    #[error("there are no sequences to pack")]
    Empty,
    /// A sequence has no steps.
    #[error("sequence {index} has length 0: sequences have at least one step; leave it out of the batch")]
    ZeroLength {
        /// Index of the sequence.
        index: usize,
    },
    /// A sequence is longer than the padded batch.
    #[error("sequence {index} has length {length}, but the padded batch has only {steps} steps")]
    TooLong {
        /// Index of the sequence.
        index: usize,
        /// Length of the sequence.
        length: usize,
        /// Number of steps of the batch.
        steps: usize,
    },
    /// The number of lengths is not the number of sequences.
    #[error("{lengths} lengths for a batch of {sequences} sequences: give one length for each sequence")]
    Count {
        /// Number of lengths.
        lengths: usize,
        /// Number of sequences.
        sequences: usize,
    },
    /// The lengths increase although `enforce_sorted` is true.
    #[error(
        "sequence {index} is longer than the one before it ({length} against {before}), but enforce_sorted asks for \
         decreasing lengths; sort them, or pass false to have them sorted here"
    )]
    NotSorted {
        /// Index of the sequence.
        index: usize,
        /// Length of the sequence.
        length: usize,
        /// Length of the sequence before.
        before: usize,
    },
    /// The total length is shorter than the longest sequence.
    #[error("total length {total} is shorter than the longest sequence, {longest} steps")]
    TotalLength {
        /// Requested number of steps.
        total: usize,
        /// Number of steps of the longest sequence.
        longest: usize,
    },
    /// The rows of two sequences differ in shape.
    #[error("sequence {index} has rows of shape {found:?}, the first one of {expected:?}")]
    RowShape {
        /// Index of the sequence.
        index: usize,
        /// Row shape of the sequence.
        found: Vec<usize>,
        /// Row shape of the first sequence.
        expected: Vec<usize>,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for PackError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Layout of packed sequences of different lengths, as in PyTorch. Sequences are sorted by length, longest first. All first
/// steps come first, then all second steps, and so on, each with only the sequences that are long enough. The indices are
/// on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    batch_sizes: Arc<[usize]>,
    /// Original index of each sorted sequence; `None` if the sequences were required to be sorted.
    sorted: Option<Arc<[usize]>>,
    lengths: Arc<[usize]>,
}

impl Packing {
    /// Creates the layout of sequences of these lengths. With `enforce_sorted` the lengths must not increase, and are not
    /// sorted.
    ///
    /// # Errors
    /// If there are no lengths, a length is 0, or the lengths increase although `enforce_sorted` is true.
    pub fn new(lengths: &[usize], enforce_sorted: bool) -> Result<Self, PackError> {
        if lengths.is_empty() {
            return Err(PackError::Empty);
        }
        if let Some(index) = lengths.iter().position(|&length| length == 0) {
            return Err(PackError::ZeroLength { index });
        }
        if enforce_sorted && let Some(i) = lengths.windows(2).position(|pair| pair[1] > pair[0]) {
            return Err(PackError::NotSorted { index: i + 1, length: lengths[i + 1], before: lengths[i] });
        }
        let mut sorted: Vec<usize> = (0..lengths.len()).collect();
        sorted.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
        // Number of sequences that reach each step, filled from the shortest sequence up.
        let mut batch_sizes = vec![0; lengths[sorted[0]]];
        let mut from = batch_sizes.len();
        for (rank, &i) in sorted.iter().enumerate().rev() {
            let reached = batch_sizes.len() - from;
            batch_sizes[reached..lengths[i]].fill(rank + 1);
            from = batch_sizes.len() - lengths[i];
        }
        let sorted = (!enforce_sorted).then(|| sorted.into());
        Ok(Self { batch_sizes: batch_sizes.into(), sorted, lengths: lengths.into() })
    }

    /// Number of sequences that reach each step.
    pub fn batch_sizes(&self) -> &[usize] {
        &self.batch_sizes
    }

    /// Original index of each sorted sequence; `None` if the sequences were required to be sorted.
    pub fn sorted_indices(&self) -> Option<&[usize]> {
        self.sorted.as_deref()
    }

    /// Sorted index of each sequence; `None` if the sequences were required to be sorted.
    pub fn unsorted_indices(&self) -> Option<Vec<usize>> {
        let sorted = self.sorted.as_ref()?;
        let mut unsorted = vec![0; sorted.len()];
        for (rank, &i) in sorted.iter().enumerate() {
            unsorted[i] = rank;
        }
        Some(unsorted)
    }

    /// Lengths in the original order.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Number of sequences.
    pub fn batch(&self) -> usize {
        self.lengths.len()
    }

    /// Number of steps of the longest sequence.
    pub fn longest(&self) -> usize {
        self.batch_sizes.len()
    }

    /// Number of packed rows: the sum of the lengths.
    pub fn rows(&self) -> usize {
        self.lengths.iter().sum()
    }

    /// Returns true if all sequences have the same length and are in their original order.
    pub(super) fn is_dense(&self) -> bool {
        let in_order = self.sorted.as_ref().is_none_or(|sorted| sorted.iter().enumerate().all(|(i, &j)| i == j));
        in_order && self.batch_sizes.last() == self.batch_sizes.first()
    }

    /// Sequence and step of each packed row.
    pub fn positions(&self) -> impl Iterator<Item = (usize, usize)> {
        self.batch_sizes.iter().enumerate().flat_map(move |(step, &size)| {
            (0..size).map(move |rank| (self.sorted.as_ref().map_or(rank, |sorted| sorted[rank]), step))
        })
    }

    /// Sorts an array with one entry per sequence along `axis`.
    #[track_caller]
    pub fn sort<B: Backend, const D: usize>(&self, x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
        match &self.sorted {
            Some(sorted) if sorted.windows(2).any(|pair| pair[0] > pair[1]) => pick(x, axis, sorted.iter().copied()),
            _ => x,
        }
    }

    /// Restores the original order; the inverse of [`sort`](Self::sort).
    #[track_caller]
    pub fn unsort<B: Backend, const D: usize>(&self, x: Tensor<B, D>, axis: usize) -> Tensor<B, D> {
        match self.unsorted_indices() {
            Some(unsorted) if unsorted.windows(2).any(|pair| pair[0] > pair[1]) => pick(x, axis, unsorted.into_iter()),
            _ => x,
        }
    }
}

/// Selects slices along an axis by their indices.
#[track_caller]
pub(super) fn pick<B: Backend, const D: usize, K: BasicOps<B>>(
    x: Tensor<B, D, K>,
    axis: usize,
    indices: impl ExactSizeIterator<Item = usize>,
) -> Tensor<B, D, K> {
    let count = indices.len();
    let indices: Vec<i64> = indices.map(|i| i as i64).collect();
    let indices = Tensor::<B, 1, Int>::from_data(TensorData::new(indices, [count]), &x.device());
    x.select(axis, indices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_steps() {
        let packing = Packing::new(&[2, 4, 1, 4], false).unwrap();
        assert_eq!(packing.batch_sizes(), [4, 3, 2, 2]);
        assert_eq!(packing.sorted_indices().unwrap(), [1, 3, 0, 2]);
        assert_eq!(packing.unsorted_indices().unwrap(), [2, 0, 3, 1]);
        assert_eq!(packing.rows(), 11);
        let positions: Vec<_> = packing.positions().collect();
        assert_eq!(positions[..5], [(1, 0), (3, 0), (0, 0), (2, 0), (1, 1)]);
        assert!(Packing::new(&[3, 3], false).unwrap().is_dense() && !packing.is_dense());
    }

    #[test]
    fn rejects_invalid_lengths() {
        assert_eq!(Packing::new(&[], true), Err(PackError::Empty));
        assert_eq!(Packing::new(&[2, 0], true), Err(PackError::ZeroLength { index: 1 }));
        assert_eq!(Packing::new(&[3, 2, 4], true), Err(PackError::NotSorted { index: 2, length: 4, before: 2 }));
    }
}
