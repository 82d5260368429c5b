//! Products of few rows with quantized matrices (gemv). They are limited by reading the blocks, which are multiplied without
//! unpacking.
//!
//! A byte of each lane is converted to a float by masking the other bytes and converting the lane. The result is 2^8, 2^16 or
//! 2^24 times too large for all bytes except the lowest. The left-hand row, laid out once in the order of the bytes,
//! compensates for this factor, so 8 weights take three instructions. The shift of the codes and the offsets become sums of
//! the left-hand row, multiplied by a scale.

use super::{
    QuantizedMatrix, add_bias,
    for_kind::for_kind,
    format::{CHUNK, Format, STRIP},
    row::Row,
    scratch::Scratch,
    unpack::unpack,
};
use crate::{
    dispatch::vectorized,
    math::dot,
    matmul::{Matrix, for_bands},
};

/// Number of weights per task: some microseconds.
pub(super) const TASK: usize = 1 << 16;

/// Computes `c = a b^T + bias` for few rows of `a`.
pub(super) fn product(a: Matrix<'_>, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if super::wide::product(a, b, bias, c) {
        return;
    }
    let mut rows = Vec::with_capacity(a.rows);
    for i in 0..a.rows {
        rows.push(Row::new(&a.data[i * a.stride..][..a.columns], b));
    }
    let width = (TASK / b.columns).max(1);
    for_bands(c, b.rows, width, |first, c| {
        // The left-hand rows are processed alternately with the same rows of blocks, which are then in cache.
        for (row, c) in rows.iter().zip(&mut *c) {
            // The shift of the codes is a sum of the whole row, and infinity minus infinity is NaN.
            if row.is_finite {
                dots(b, first, row, c);
            } else {
                plain_dots(b, first, row.numbers, c);
            }
        }
        add_bias(c, bias, first);
    });
}

vectorized! {
    /// Computes the dot products of a row with the rows of `b` from `first` on.
    fn dots<FUSED>(b: QuantizedMatrix<'_>, first: usize, row: &Row<'_>, c: &mut [f32]) {
        if FUSED {
            for_kind!(b.kind, dots_for[FUSED](b, first, row, c));
        } else {
            plain_dots(b, first, row.numbers, c);
        }
    }
}

/// Like [`dots`], for CPUs without FMA, for which compiling every format is not worthwhile.
pub(super) fn plain_dots(b: QuantizedMatrix<'_>, first: usize, x: &[f32], c: &mut [f32]) {
    let mut weights = vec![0.0; x.len()];
    for (j, c) in c.iter_mut().enumerate() {
        unpack(b.kind, b.part(first + j, 0, b.columns), &mut weights);
        *c = dot(x, &weights);
    }
}

#[inline(always)]
fn dots_for<F: Format, const FUSED: bool>(b: QuantizedMatrix<'_>, first: usize, row: &Row<'_>, c: &mut [f32]) {
    let (depth, unit) = (b.columns, F::STRIPS * STRIP);
    let bytes = |weights: usize| weights * size_of::<F::Unit>() / unit;
    // Short rows are processed together as one row that repeats the left-hand row, unless units extend across them.
    let rows = if depth.is_multiple_of(unit) { (CHUNK / depth).max(1) } else { 1 };
    let mut scratch = Scratch::new();
    for (j, c) in c.chunks_mut(rows).enumerate() {
        c.fill(0.0);
        for from in (0..depth).step_by(CHUNK) {
            let n = CHUNK.min(depth - from);
            let blocks = &b.data[bytes((first + j * rows) * depth + from)..][..bytes(c.len() * n)];
            let x = &row.strips[from / STRIP..][..n.div_ceil(unit) * F::STRIPS];
            let numbers = &row.sums[from / unit * F::SCALES..][..n.div_ceil(unit) * F::SCALES];
            scratch.add_codes::<F, FUSED>(blocks, x);
            for (i, c) in c.iter_mut().enumerate() {
                *c += scratch.total::<F, FUSED>(i, x.len() * F::SUMS, numbers);
            }
        }
    }
}
