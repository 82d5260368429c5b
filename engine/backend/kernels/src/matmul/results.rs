//! Memory for the results of a product.

use std::mem::MaybeUninit;

use super::{Rounded, target::Target};

/// Receives the results of a product, some of a row at a time.
pub(crate) trait Results: Sync {
    /// Returns the numbers of rows and columns of the product.
    fn size(&self) -> [usize; 2];

    /// Takes the sums of a row from a column on, and writes what is made of them. May change the sums. Returns the number of
    /// elements written.
    ///
    /// # Safety
    /// No other thread may access the memory of these results.
    unsafe fn write(&self, row: usize, column: usize, sums: &mut [f32]) -> usize;
}

/// A matrix: the sums, with a bias added, if any.
pub(crate) struct Sums<'a, T> {
    target: Target<'a, T>,
    size: [usize; 2],
    bias: Option<&'a [f32]>,
}

impl<'a, T> Sums<'a, T> {
    /// # Panics
    /// If the memory has another size.
    pub fn new(out: &'a mut [MaybeUninit<T>], [rows, columns]: [usize; 2], bias: Option<&'a [f32]>) -> Self {
        assert!(out.len() == rows * columns && bias.is_none_or(|bias| bias.len() == columns), "memory of another size");
        Self { target: Target::new(out, columns), size: [rows, columns], bias }
    }
}

impl<T: Rounded> Results for Sums<'_, T> {
    fn size(&self) -> [usize; 2] {
        self.size
    }

    #[inline(always)]
    unsafe fn write(&self, row: usize, column: usize, sums: &mut [f32]) -> usize {
        let [rows, columns] = self.size;
        assert!(row < rows && column + sums.len() <= columns, "row {row}, {} from column {column} on", sums.len());
        if let Some(bias) = self.bias {
            sums.iter_mut().zip(&bias[column..]).for_each(|(sum, bias)| *sum += bias);
        }
        let to = self.target.first(rows, columns).wrapping_add(row * columns + column);
        for (i, &sum) in sums.iter().enumerate() {
            // SAFETY: the assertion shows that the elements are within the memory, which no other thread accesses.
            unsafe { to.add(i).write(T::rounded(sum)) };
        }
        sums.len()
    }
}
