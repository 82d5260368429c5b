use std::ops::Range;

/// Assignment of the rows of a packed batch to steps, as in PyTorch's `PackedSequence`: the sequences are sorted,
/// longest first; the rows of step 0 come first, then those of step 1, and so on, with only the sequences that are
/// still active.
#[derive(Clone, Debug)]
pub struct Steps {
    /// First packed row of each step, followed by the total number of rows.
    offsets: Vec<usize>,
    reverse: bool,
}

impl Steps {
    /// Builds the steps from the number of active sequences at each. With `reverse`, each sequence is processed from
    /// its own end.
    ///
    /// # Panics
    /// If the sizes increase, or a size is 0.
    pub fn new(batch_sizes: &[usize], reverse: bool) -> Self {
        let falling = batch_sizes.windows(2).all(|pair| pair[0] >= pair[1]);
        assert!(
            falling && !batch_sizes.contains(&0),
            "batch sizes must be positive and never increase: {batch_sizes:?}"
        );
        let mut offsets = vec![0];
        for size in batch_sizes {
            offsets.push(offsets[offsets.len() - 1] + size);
        }
        Self { offsets, reverse }
    }

    /// Returns the number of sequences.
    pub fn batch(&self) -> usize {
        self.offsets.get(1).copied().unwrap_or(0)
    }

    /// Returns the number of packed rows: the sum of the lengths.
    pub fn rows(&self) -> usize {
        self.offsets[self.len()]
    }

    /// Returns the number of steps of the longest sequence.
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns true if there are no steps.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of hidden units of a layer, from the sizes of its outputs and weights and its number of gates;
    /// `None` if there is nothing to compute.
    pub(crate) fn hidden(&self, outputs: usize, weights: usize, gates: usize) -> Option<usize> {
        let hidden = outputs / self.rows().max(1);
        assert_eq!(outputs, hidden * self.rows(), "the outputs are not whole rows");
        assert!(outputs == 0 || weights == gates * hidden * hidden, "{weights} weights for {hidden} hidden units");
        (outputs > 0).then_some(hidden)
    }

    /// Returns the number of active sequences at a step.
    fn size(&self, step: usize) -> usize {
        self.offsets[step + 1] - self.offsets[step]
    }

    /// Returns the steps in the order in which they are processed.
    pub(crate) fn order(&self) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let (len, reverse) = (self.len(), self.reverse);
        (0..len).map(move |i| if reverse { len - 1 - i } else { i })
    }

    /// Returns the packed rows of some of the sequences at a step.
    pub(crate) fn rows_at(&self, step: usize, group: &Range<usize>) -> Range<usize> {
        let (start, size) = (self.offsets[step], self.size(step));
        start + group.start.min(size)..start + group.end.min(size)
    }

    /// Returns the states of the sequences `group` before a step, as slices of `packed` (the states after each step) and of
    /// `initial` (the states before the first step). The sequences that were active at the previous step come first.
    pub(crate) fn before<'a>(
        &self,
        step: usize,
        group: &Range<usize>,
        columns: usize,
        packed: &'a [f32],
        initial: &'a [f32],
    ) -> (&'a [f32], &'a [f32]) {
        let earlier = if self.reverse { (step + 1 < self.len()).then_some(step + 1) } else { step.checked_sub(1) };
        let now = self.rows_at(step, group).len();
        let rows = earlier.map_or(0..0, |earlier| self.rows_at(earlier, group));
        let from_packed = rows.len().min(now);
        let first = &packed[rows.start * columns..][..from_packed * columns];
        (first, &initial[(group.start + from_packed) * columns..][..(now - from_packed) * columns])
    }

    /// Returns [`before`](Self::before) for all packed rows, as a copy.
    pub(crate) fn gather_before(&self, columns: usize, packed: &[f32], initial: &[f32]) -> Vec<f32> {
        let mut out = Vec::with_capacity(packed.len());
        for step in 0..self.len() {
            let (first, second) = self.before(step, &(0..self.batch()), columns, packed, initial);
            out.extend_from_slice(first);
            out.extend_from_slice(second);
        }
        out
    }

    /// Divides the sequences into at most `count` groups with about equal numbers of rows.
    pub(crate) fn groups(&self, count: usize) -> Vec<Range<usize>> {
        let mut groups = Vec::new();
        let (mut start, mut taken, mut length) = (0, 0, self.len());
        for row in 0..self.batch() {
            while self.size(length - 1) <= row {
                length -= 1;
            }
            // A row belongs to the group that contains its middle.
            let group = (2 * taken + length) * count / (2 * self.rows());
            if group > groups.len() && row > start {
                groups.push(start..row);
                start = row;
            }
            taken += length;
        }
        if start < self.batch() {
            groups.push(start..self.batch());
        }
        groups
    }

    /// Divides packed rows among groups: for each group, its rows at each step.
    pub(crate) fn split<'a>(
        &self,
        groups: &[Range<usize>],
        columns: usize,
        mut packed: &'a mut [f32],
    ) -> Vec<Vec<&'a mut [f32]>> {
        assert_eq!(packed.len(), self.rows() * columns, "a packed buffer has another size");
        let mut parts: Vec<Vec<_>> = groups.iter().map(|_| Vec::with_capacity(self.len())).collect();
        for step in 0..self.len() {
            for (group, part) in groups.iter().zip(&mut parts) {
                let rows = self.rows_at(step, group).len();
                part.push(packed.split_off_mut(..rows * columns).unwrap_or_default());
            }
        }
        parts
    }

    /// Divides the rows of a state among groups.
    pub(crate) fn split_state<'a>(
        &self,
        groups: &[Range<usize>],
        columns: usize,
        mut state: &'a mut [f32],
    ) -> Vec<&'a mut [f32]> {
        assert_eq!(state.len(), self.batch() * columns, "a state has another size");
        groups.iter().map(|group| state.split_off_mut(..group.len() * columns).unwrap_or_default()).collect()
    }
}
