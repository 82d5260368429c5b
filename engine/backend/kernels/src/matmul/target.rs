//! Output memory that several tasks write to.

use std::{marker::PhantomData, mem::MaybeUninit};

/// Output memory: rows that begin `stride` elements apart. Each task writes rows or columns of its own. The memory is
/// borrowed exclusively for the lifetime of the target, and every pointer into it is checked against its length.
pub(crate) struct Target<'a> {
    data: *mut f32,
    len: usize,
    stride: usize,
    memory: PhantomData<&'a mut [MaybeUninit<f32>]>,
}

// SAFETY: a `Target` stands for an exclusive borrow of f32, held by its lifetime, and `&mut [f32]` is `Send`.
unsafe impl Send for Target<'_> {}
// SAFETY: the safe functions only compute addresses. Code that writes through one must justify, in its unsafe block,
// that no other thread uses these elements.
unsafe impl Sync for Target<'_> {}

impl<'a> Target<'a> {
    /// Takes memory that need not be initialised.
    pub fn new(out: &'a mut [MaybeUninit<f32>], stride: usize) -> Self {
        Self { data: out.as_mut_ptr().cast(), len: out.len(), stride, memory: PhantomData }
    }

    /// Takes initialised memory.
    pub fn of(out: &'a mut [f32], stride: usize) -> Self {
        Self { data: out.as_mut_ptr(), len: out.len(), stride, memory: PhantomData }
    }

    /// Returns the rest of the memory, from a column of a row on.
    ///
    /// # Panics
    /// If that is behind the end.
    pub fn from(&self, row: usize, column: usize) -> Target<'_> {
        let at = row * self.stride + column;
        assert!(at <= self.len, "row {row}, column {column} of {} elements", self.len);
        Target { data: self.data.wrapping_add(at), len: self.len - at, stride: self.stride, memory: PhantomData }
    }

    /// Elements from one row to the next.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Returns a pointer to the first element, from which on there are `rows` rows of `columns` columns.
    ///
    /// # Panics
    /// If there are not, or if rows overlap.
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
