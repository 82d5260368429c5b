//! Products with matrices of 16-bit floats, which are converted when they are used: only half as much memory is read as for
//! f32, and no copy in f32 is made.

mod convert;
#[cfg(test)]
mod tests;

pub(crate) use convert::from_f16;
use convert::{Bf16, F16, widen_columns, widen_turned};
pub use convert::{HalfFormat, widen};

use crate::matmul::{Element, GEMV_ROWS, GemvMatrix, Matrix, NR, Source, gemv, matmul_converted};

/// A matrix of 16-bit floats in a slice.
#[derive(Clone, Copy)]
pub struct HalfMatrix<'a> {
    /// Bits of the elements. The rows may be separated by unused elements.
    pub data: &'a [u16],
    /// Format of the elements.
    pub format: HalfFormat,
    /// Number of rows of the matrix.
    pub rows: usize,
    /// Number of columns of the matrix.
    pub columns: usize,
    /// Distance from one row in memory to the next, in elements.
    pub stride: usize,
    /// If true, the rows in memory are the columns of the matrix.
    pub transposed: bool,
}

impl<'a> HalfMatrix<'a> {
    /// Views `data` as `rows` rows of `columns`.
    pub fn new(data: &'a [u16], format: HalfFormat, rows: usize, columns: usize) -> Self {
        Self { data, format, rows, columns, stride: columns, transposed: false }
    }

    /// Returns the transpose, without a copy.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    fn gemv_matrix<E: Element<Bits = u16>>(self) -> GemvMatrix<'a, E> {
        let Self { data, rows, columns, stride, transposed, .. } = self;
        GemvMatrix { data, rows, columns, stride, transposed }
    }

    fn check(&self) {
        let (outer, inner) = if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) };
        let needed = if outer * inner == 0 { 0 } else { (outer - 1) * self.stride + inner };
        assert!(self.stride >= inner && self.data.len() >= needed, "{} elements are too few", self.data.len());
    }
}

/// Computes `c = a b + bias` in f32. `c` is `[a.rows, b.columns]`. The bias, if any, is added to each row.
///
/// # Panics
/// If the sizes do not match.
pub fn matmul_half(a: Matrix<'_>, b: HalfMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    a.check();
    b.check();
    let columns = b.columns;
    assert!(a.columns == b.rows && c.len() == a.rows * columns && bias.is_none_or(|bias| bias.len() == columns));
    if c.is_empty() {
        return;
    }
    if a.rows > GEMV_ROWS || b.rows == 0 {
        return matmul_converted(a, &b, bias, columns, c);
    }
    match b.format {
        HalfFormat::F16 => gemv(a, b.gemv_matrix::<F16>(), bias, c),
        HalfFormat::Bf16 => gemv(a, b.gemv_matrix::<Bf16>(), bias, c),
    }
}

impl Source for HalfMatrix<'_> {
    fn pack(&self, row: usize, column: usize, panel: &mut [[f32; NR]]) {
        let width = NR.min(self.columns - column);
        if self.transposed {
            widen_turned(self.format, &self.data[column * self.stride + row..], self.stride, width, panel);
        } else {
            widen_columns(self.format, &self.data[row * self.stride + column..], self.stride, width, panel);
        }
    }
}
