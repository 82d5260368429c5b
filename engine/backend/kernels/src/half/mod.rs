//! 16-bit floats: conversions; products with matrices that are converted when they are used, so that half as much memory is
//! read as for f32 and no copy in f32 is made; and products of two matrices of bf16.

mod convert;
mod pairs;
#[cfg(test)]
mod tests;

pub(crate) use convert::from_f16;
pub(crate) use convert::{Bf16, F16, Half, narrow_part, widen_part, widen_rows};
pub use convert::{HalfFormat, narrowed, narrowed_and_scaled, widen, widened, widened_rows};
use convert::{widen_columns, widen_transposed};
#[cfg(target_arch = "x86_64")]
pub(crate) use pairs::joined;
pub use pairs::{product_bf16, rounded_product_bf16};

use crate::matmul::{GEMV_ROWS, Matrix, NR, Source, gemv, matmul_converted};

/// A matrix of 16-bit floats in a slice.
#[derive(Clone, Copy)]
pub struct HalfMatrix<'a> {
    /// Bits of the elements.
    pub bits: Matrix<'a, u16>,
    /// Format of the elements.
    pub format: HalfFormat,
}

impl<'a> HalfMatrix<'a> {
    /// Views `data` as `rows` rows of `columns`.
    pub fn new(data: &'a [u16], format: HalfFormat, rows: usize, columns: usize) -> Self {
        Self { bits: Matrix::new(data, rows, columns), format }
    }

    /// Returns the transpose, without a copy.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self { bits: self.bits.transpose(), ..self }
    }
}

/// Computes `c = a b + bias` in f32. `c` is `[a.rows, b.columns]`. The bias, if any, is added to each row.
///
/// # Panics
/// If the sizes do not match.
pub fn matmul_half(a: Matrix<'_>, b: HalfMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    a.check();
    b.bits.check();
    let Matrix { rows, columns, .. } = b.bits;
    assert!(a.columns == rows && c.len() == a.rows * columns && bias.is_none_or(|bias| bias.len() == columns));
    if c.is_empty() {
        return;
    }
    if a.rows > GEMV_ROWS || rows == 0 {
        return matmul_converted(a, &b, bias, columns, c);
    }
    match b.format {
        HalfFormat::F16 => gemv::<F16>(a, b.bits, bias, c),
        HalfFormat::Bf16 => gemv::<Bf16>(a, b.bits, bias, c),
    }
}

impl Source for HalfMatrix<'_> {
    fn pack(&self, row: usize, column: usize, panel: &mut [[f32; NR]]) {
        let Matrix { data, columns, stride, transposed, .. } = self.bits;
        let width = NR.min(columns - column);
        if transposed {
            widen_transposed(self.format, &data[column * stride + row..], stride, width, panel);
        } else {
            widen_columns(self.format, &data[row * stride + column..], stride, width, panel);
        }
    }
}
