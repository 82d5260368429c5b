//! Memory of packed panels.

use std::ops::{Deref, DerefMut};

use super::microkernel::NR;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A buffer of panel rows, of [`NR`] columns each. The first begins at a cache line, so that each row is one line: a row in two
/// lines is read at half the speed.
#[derive(Default)]
pub(crate) struct PanelRows {
    memory: Vec<f32>,
    /// Index of the first element of the first row.
    start: usize,
    len: usize,
}

impl PanelRows {
    pub const fn new() -> Self {
        Self { memory: Vec::new(), start: 0, len: 0 }
    }

    /// Returns rows of zeros.
    pub fn zeroed(len: usize) -> Self {
        // The system provides zeroed memory for free.
        let memory = vec![0.0; len * NR + LINE / size_of::<f32>()];
        Self { start: memory.as_ptr().align_offset(LINE), memory, len }
    }

    /// Sets the number of rows. Their values are unspecified.
    pub fn set_len(&mut self, len: usize) {
        match self.start + len * NR <= self.memory.len() {
            true => self.len = len,
            false => *self = Self::zeroed(len),
        }
    }

    /// Extends the buffer to at least `len` rows, whose values are unspecified.
    pub fn grow(&mut self, len: usize) {
        self.set_len(len.max(self.len));
    }
}

impl Deref for PanelRows {
    type Target = [[f32; NR]];

    fn deref(&self) -> &[[f32; NR]] {
        self.memory[self.start..][..self.len * NR].as_chunks().0
    }
}

impl DerefMut for PanelRows {
    fn deref_mut(&mut self) -> &mut [[f32; NR]] {
        self.memory[self.start..][..self.len * NR].as_chunks_mut().0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_cache_lines() {
        let mut rows = PanelRows::new();
        assert!(rows.is_empty());
        for len in [3, 1, 1000, 7] {
            rows.set_len(len);
            assert!(rows.len() == len && rows.as_ptr().addr().is_multiple_of(LINE) && size_of_val(&rows[0]) == LINE);
            rows.fill([1.0; NR]);
        }
        rows.grow(5);
        assert_eq!(rows.len(), 7);
        rows.grow(2000);
        assert!(rows.len() == 2000 && rows.as_ptr().addr().is_multiple_of(LINE));
        assert!(PanelRows::zeroed(9).iter().all(|row| *row == [0.0; NR]));
    }
}
