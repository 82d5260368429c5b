//! Memory that several tasks write results to.

use std::{marker::PhantomData, mem::MaybeUninit};

/// Memory for results: rows that begin `stride` elements apart, of which each task writes rows or columns of its own. It is
/// borrowed exclusively for as long as this lives, and every pointer into it is checked against its length.
pub(crate) struct Target<'a> {
    data: *mut f32,
    len: usize,
    stride: usize,
    memory: PhantomData<&'a mut [MaybeUninit<f32>]>,
}

// SAFETY: it stands for an exclusive borrow of numbers, which may be sent.
unsafe impl Send for Target<'_> {}
// SAFETY: its safe functions only compute addresses; whoever writes through one says, in an unsafe block, why nobody else
// has these places.
unsafe impl Sync for Target<'_> {}

impl<'a> Target<'a> {
    /// Memory that need not hold anything yet.
    pub fn new(out: &'a mut [MaybeUninit<f32>], stride: usize) -> Self {
        Self { data: out.as_mut_ptr().cast(), len: out.len(), stride, memory: PhantomData }
    }

    /// Memory that holds numbers.
    pub fn of(out: &'a mut [f32], stride: usize) -> Self {
        Self { data: out.as_mut_ptr(), len: out.len(), stride, memory: PhantomData }
    }

    /// The rest of it, from a column of a row on.
    ///
    /// # Panics
    /// If that lies behind the end.
    pub fn from(&self, row: usize, column: usize) -> Target<'_> {
        let at = row * self.stride + column;
        assert!(at <= self.len, "row {row}, column {column} of {} elements", self.len);
        Target { data: self.data.wrapping_add(at), len: self.len - at, stride: self.stride, memory: PhantomData }
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The first element, from which on there are so many rows of so many columns.
    ///
    /// # Panics
    /// If there are not, or rows overlap.
    pub fn first(&self, rows: usize, columns: usize) -> *mut f32 {
        let needed = if rows == 0 { 0 } else { (rows - 1) * self.stride + columns };
        let apart = rows < 2 || columns <= self.stride;
        assert!(needed <= self.len && apart, "{rows} rows of {columns} in {} elements", self.len);
        self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panics(run: impl FnOnce() -> *mut f32 + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(run).is_err()
    }

    #[test]
    fn rejects_what_lies_outside() {
        let room = || vec![0.0; 23];
        // Three rows of 7 that begin 8 apart.
        assert!(!panics(|| Target::of(&mut room(), 8).first(3, 7)));
        assert!(panics(|| Target::of(&mut room(), 8).first(3, 8)));
        assert!(panics(|| Target::of(&mut room(), 8).first(4, 1)));
        assert!(panics(|| Target::of(&mut room(), 8).first(2, 9)));
        assert!(!panics(|| Target::of(&mut room(), 8).first(1, 23)));
        assert!(!panics(|| Target::of(&mut room(), 8).from(2, 6).first(1, 1)));
        assert!(panics(|| Target::of(&mut room(), 8).from(2, 6).first(1, 2)));
        assert!(panics(|| Target::of(&mut room(), 8).from(2, 8).first(0, 0)));
    }
}
