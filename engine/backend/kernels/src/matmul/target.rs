//! Output memory that several tasks write to.

use std::{marker::PhantomData, mem::MaybeUninit};

/// Output memory with rows `stride` elements apart. Each task writes its own rows or columns. The memory is borrowed
/// exclusively for the lifetime of the target, and every pointer into it is checked against its length.
pub(crate) struct Target<'a, T = f32> {
    data: *mut T,
    len: usize,
    stride: usize,
    memory: PhantomData<&'a mut [MaybeUninit<T>]>,
}

// SAFETY: a `Target` represents an exclusive borrow for its lifetime, and `&mut [T]` is `Send` for these types.
unsafe impl<T: Send> Send for Target<'_, T> {}
// SAFETY: the safe functions only compute addresses. Code that writes through such an address must justify, in its unsafe
// block, that no other thread accesses these elements.
unsafe impl<T: Send> Sync for Target<'_, T> {}

impl<'a, T> Target<'a, T> {
    /// Creates a target of memory that need not be initialised.
    pub fn new(out: &'a mut [MaybeUninit<T>], stride: usize) -> Self {
        Self { data: out.as_mut_ptr().cast(), len: out.len(), stride, memory: PhantomData }
    }

    /// Creates a target of initialised memory.
    pub fn of(out: &'a mut [T], stride: usize) -> Self {
        Self { data: out.as_mut_ptr(), len: out.len(), stride, memory: PhantomData }
    }

    /// Returns the memory from a column of a row on.
    ///
    /// # Panics
    /// If the position is beyond the end.
    pub fn from(&self, row: usize, column: usize) -> Target<'_, T> {
        let at = row * self.stride + column;
        assert!(at <= self.len, "row {row}, column {column} of {} elements", self.len);
        Target { data: self.data.wrapping_add(at), len: self.len - at, stride: self.stride, memory: PhantomData }
    }

    /// Distance from one row to the next, in elements.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns a pointer to the first element, which is followed by `rows` rows of `columns` columns.
    ///
    /// # Panics
    /// If the memory is too small, or the rows overlap.
    pub fn first(&self, rows: usize, columns: usize) -> *mut T {
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
    fn rejects_views_out_of_bounds() {
        let room = || vec![0.0; 23];
        // Three rows of 7, 8 apart.
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
