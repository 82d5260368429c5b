//! Products of few rows (gemv). They are limited by reading the matrix, whose elements are used directly, without packing.

use rayon::prelude::*;

use super::{Element, Matrix, for_bands};
use crate::{
    dispatch::{prefetch, vectorized},
    math::{LANES, fma},
};

/// Maximum number of rows for which the matrix is not packed. Packing costs about as much as this number of uses.
pub(crate) const GEMV_ROWS: usize = 4;

/// Computes `c = a b + bias`. `a` has at most [`GEMV_ROWS`] rows, and no matrix is empty.
pub(crate) fn gemv<E: Element>(a: Matrix<'_>, b: Matrix<'_, E::Bits>, bias: Option<&[f32]>, c: &mut [f32]) {
    let rows = a.contiguous();
    if b.transposed {
        dots::<E>(&rows, &b, bias, c);
    } else {
        sums::<E>(&rows, &b, bias, c);
    }
}

/// Number of matrix elements per task: some microseconds of reading.
const TASK: usize = 1 << 15;
/// Minimum number of elements of a matrix that exceeds all caches. Such a matrix is read row by row, which is faster from
/// memory than four rows at a time.
const FAR: usize = 1 << 22;
/// Distance in elements at which a row is prefetched.
const AHEAD: usize = 1 << 10;

/// Computes `c = a b + bias` for a matrix `b` with contiguous columns. `a` consists of contiguous rows.
fn dots<E: Element>(a: &[f32], b: &Matrix<'_, E::Bits>, bias: Option<&[f32]>, c: &mut [f32]) {
    let width = (TASK / b.rows.max(1)).max(4).next_multiple_of(4);
    for_bands(c, b.columns, width, |first, rows| {
        let data = &b.data[(first * b.stride).min(b.data.len())..];
        dots_band::<E>(data, b.stride, a, b.rows, rows, b.rows * b.columns >= FAR);
        if let Some(bias) = bias {
            for row in rows {
                row.iter_mut().zip(&bias[first..]).for_each(|(c, bias)| *c += bias);
            }
        }
    });
}

vectorized! {
    /// Computes the dot products of rows of `a`, of length `depth`, with rows of `w`.
    fn dots_band<FUSED, E: Element>(w: &[E::Bits], stride: usize, a: &[f32], depth: usize, c: &mut [&mut [f32]], far: bool) {
        // Written so that the sums stay in registers however the compiler unrolls and inlines: they are indexed only by
        // constants, and no call takes their address.
        #[inline(always)]
        fn add<E: Element, const FUSED: bool>(
            sum: [f32; LANES], w: &[E::Bits; LANES], a: &[f32; LANES],
        ) -> [f32; LANES] {
            let mut next = [0.0; LANES];
            for j in 0..LANES {
                next[j] = fma::<FUSED>(E::number(w[j]), a[j], sum[j]);
            }
            next
        }
        #[inline(always)]
        #[allow(clippy::needless_range_loop)]
        fn total<E: Element, const FUSED: bool>(sum: [f32; LANES], w: &[E::Bits], a: &[f32]) -> f32 {
            let mut total = 0.0;
            for k in 0..a.len() {
                total = fma::<FUSED>(E::number(w[k]), a[k], total);
            }
            for j in 0..LANES {
                total += sum[j];
            }
            total
        }
        /// Computes the dot products with up to four rows of `w` from `first` on.
        #[inline(always)]
        fn four<E: Element, const FUSED: bool>(
            w: &[E::Bits], stride: usize, first: usize, a: &[f32], c: &mut [f32],
        ) {
            let (chunks, rest) = a.as_chunks::<LANES>();
            let (count, last) = (chunks.len(), c.len() - 1);
            let row = |i: usize| {
                let row = &w[(first + i.min(last)) * stride..][..a.len()];
                (&row.as_chunks::<LANES>().0[..count], &row[count * LANES..])
            };
            let ((w0, rest0), (w1, rest1), (w2, rest2), (w3, rest3)) = (row(0), row(1), row(2), row(3));
            let (mut s0, mut s1, mut s2, mut s3) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
            for k in 0..count {
                s0 = add::<E, FUSED>(s0, &w0[k], &chunks[k]);
                s1 = add::<E, FUSED>(s1, &w1[k], &chunks[k]);
                s2 = add::<E, FUSED>(s2, &w2[k], &chunks[k]);
                s3 = add::<E, FUSED>(s3, &w3[k], &chunks[k]);
            }
            let totals = [
                total::<E, FUSED>(s0, rest0, rest),
                total::<E, FUSED>(s1, rest1, rest),
                total::<E, FUSED>(s2, rest2, rest),
                total::<E, FUSED>(s3, rest3, rest),
            ];
            c.copy_from_slice(&totals[..c.len()]);
        }
        /// Returns the dot product with a row of `w` that is not in cache.
        #[inline(always)]
        fn one<E: Element, const FUSED: bool>(w: &[E::Bits], a: &[f32]) -> f32 {
            let ((chunks, rest), (wide, w_rest)) = (a.as_chunks::<{ 4 * LANES }>(), w.as_chunks::<{ 4 * LANES }>());
            let mut sums = [0.0; 4 * LANES];
            for (w, a) in wide.iter().zip(chunks) {
                for part in 0..4 {
                    prefetch(w.as_ptr().wrapping_add(AHEAD + part * LANES));
                }
                let mut next = [0.0; 4 * LANES];
                for j in 0..4 * LANES {
                    next[j] = fma::<FUSED>(E::number(w[j]), a[j], sums[j]);
                }
                sums = next;
            }
            let mut lanes = [0.0; LANES];
            for j in 0..LANES {
                lanes[j] = (sums[j] + sums[LANES + j]) + (sums[2 * LANES + j] + sums[3 * LANES + j]);
            }
            total::<E, FUSED>(lanes, w_rest, rest)
        }
        let width = c[0].len();
        if far {
            for first in 0..width {
                let w = &w[first * stride..][..depth];
                for (a, c) in a.chunks_exact(depth).zip(c.iter_mut()) {
                    c[first] = one::<E, FUSED>(w, a);
                }
            }
            return;
        }
        // The rows of `a` are processed alternately with the same rows of `w`, which are then in cache.
        for first in (0..width).step_by(4) {
            for (i, c) in c.iter_mut().enumerate() {
                let c = &mut c[first..width.min(first + 4)];
                four::<E, FUSED>(w, stride, first, &a[i * depth..][..depth], c);
            }
        }
    }
}

/// Columns per task if the rows of the matrix are contiguous: enough for long runs of reading.
const BAND: usize = 1024;
/// Columns per task for matrices with many columns.
const WIDE_BAND: usize = 4096;
/// Rows per task. Both depend only on the sizes, so that the sums do not depend on the number of threads.
const PART: usize = 256;
/// Number of rows that are added at once.
const STEP: usize = 8;

/// Like [`dots`], for contiguous rows of `b`. A task sums some rows of some columns.
fn sums<E: Element>(a: &[f32], b: &Matrix<'_, E::Bits>, bias: Option<&[f32]>, c: &mut [f32]) {
    let (depth, columns) = (b.rows, b.columns);
    let band = if columns >= 4 * WIDE_BAND { WIDE_BAND } else { BAND.min(columns) };
    let (parts, bands, rows) = (depth.div_ceil(PART), columns.div_ceil(band), c.len() / columns);
    // `[part][band][row][column of the band]`.
    let size = rows * band;
    let mut sums = vec![0.0; parts * bands * size];
    let run = |(task, sums): (usize, &mut [f32])| {
        let (from, first) = (task / bands * PART, task % bands * band);
        let (used, width) = (PART.min(depth - from), band.min(columns - first));
        let a_rows = a.chunks_exact(depth).map(|a| &a[from..][..used]);
        for at in (0..used).step_by(STEP) {
            let w = &b.data[(from + at) * b.stride + first..];
            for (a, sums) in a_rows.clone().zip(sums.chunks_exact_mut(band)) {
                add_rows::<E>(w, b.stride, &a[at..used.min(at + STEP)], &mut sums[..width]);
            }
        }
    };
    if depth * columns <= TASK {
        sums.chunks_exact_mut(size).enumerate().for_each(run);
    } else {
        sums.par_chunks_exact_mut(size).enumerate().for_each(run);
    }
    for (row, c) in c.chunks_exact_mut(columns).enumerate() {
        match bias {
            Some(bias) => c.copy_from_slice(bias),
            None => c.fill(0.0),
        }
        for (task, sums) in sums.chunks_exact(size).enumerate() {
            let first = task % bands * band;
            c[first..].iter_mut().zip(&sums[row * band..][..band]).for_each(|(c, sum)| *c += sum);
        }
    }
}

vectorized! {
    /// Adds at most [`STEP`] rows of `w`, each multiplied by an element of `a`.
    fn add_rows<FUSED, E: Element>(w: &[E::Bits], stride: usize, a: &[f32], sums: &mut [f32]) {
        #[inline(always)]
        fn add<E: Element, const FUSED: bool, const R: usize>(w: &[E::Bits], stride: usize, a: &[f32; R], sums: &mut [f32]) {
            let n = sums.len();
            let (chunks, rest) = sums.as_chunks_mut::<LANES>();
            let count = chunks.len();
            let mut rows: [&[[E::Bits; LANES]]; R] = [&[]; R];
            for r in 0..R {
                rows[r] = &w[r * stride..][..n].as_chunks::<LANES>().0[..count];
            }
            for k in 0..count {
                let mut next = chunks[k];
                for r in 0..R {
                    for j in 0..LANES {
                        next[j] = fma::<FUSED>(a[r], E::number(rows[r][k][j]), next[j]);
                    }
                }
                chunks[k] = next;
            }
            for (j, sum) in rest.iter_mut().enumerate() {
                for r in 0..R {
                    *sum = fma::<FUSED>(a[r], E::number(w[r * stride + count * LANES + j]), *sum);
                }
            }
        }
        if let Ok(a) = a.try_into() {
            return add::<E, FUSED, STEP>(w, stride, a, sums);
        }
        for (r, &a) in a.iter().enumerate() {
            add::<E, FUSED, 1>(&w[r * stride..], stride, &[a], sums);
        }
    }
}
