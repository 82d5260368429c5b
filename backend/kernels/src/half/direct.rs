//! Products of few rows, which take as long as reading the matrix: each element is used where it is read.

use rayon::prelude::*;

use super::{HalfFormat, HalfMatrix, convert::number};
use crate::{
    dispatch::vectorized,
    math::{LANES, fma},
    matmul::for_bands,
};

/// Elements of a matrix that make a task: some microseconds of reading.
const TASK: usize = 1 << 15;

/// `c = a b + bias`, where the columns of `b` are contiguous. `a` is whole rows, one after the other.
pub(super) fn dots(a: &[f32], b: HalfMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    let width = (TASK / b.rows.max(1)).max(4).next_multiple_of(4);
    for_bands(c, b.columns, width, |first, rows| {
        let data = &b.data[(first * b.stride).min(b.data.len())..];
        dots_band(data, b.format, b.stride, a, b.rows, rows);
        if let Some(bias) = bias {
            for row in rows {
                row.iter_mut().zip(&bias[first..]).for_each(|(c, bias)| *c += bias);
            }
        }
    });
}

vectorized! {
    /// The products of rows of `a`, `depth` long, with rows of `w`.
    fn dots_band<FUSED>(
        w: &[u16], format: HalfFormat, stride: usize, a: &[f32], depth: usize, c: &mut [&mut [f32]],
    ) {
        // Written so that the sums stay in registers whatever the compiler decides about unrolling and inlining: no index of them
        // is a variable, and no call sees their address.
        #[inline(always)]
        fn add<const FUSED: bool, const F16: bool>(
            sum: [f32; LANES], w: &[u16; LANES], a: &[f32; LANES],
        ) -> [f32; LANES] {
            let mut next = [0.0; LANES];
            for j in 0..LANES {
                next[j] = fma::<FUSED>(number::<F16>(w[j]), a[j], sum[j]);
            }
            next
        }
        #[inline(always)]
        #[allow(clippy::needless_range_loop)]
        fn total<const FUSED: bool, const F16: bool>(sum: [f32; LANES], w: &[u16], a: &[f32]) -> f32 {
            let mut total = 0.0;
            for k in 0..a.len() {
                total = fma::<FUSED>(number::<F16>(w[k]), a[k], total);
            }
            for j in 0..LANES {
                total += sum[j];
            }
            total
        }
        /// The products of four rows from row `first` of `w` on, or if there are fewer, of those.
        #[inline(always)]
        fn four<const FUSED: bool, const F16: bool>(
            w: &[u16], stride: usize, first: usize, a: &[f32], c: &mut [f32],
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
                s0 = add::<FUSED, F16>(s0, &w0[k], &chunks[k]);
                s1 = add::<FUSED, F16>(s1, &w1[k], &chunks[k]);
                s2 = add::<FUSED, F16>(s2, &w2[k], &chunks[k]);
                s3 = add::<FUSED, F16>(s3, &w3[k], &chunks[k]);
            }
            let totals = [
                total::<FUSED, F16>(s0, rest0, rest),
                total::<FUSED, F16>(s1, rest1, rest),
                total::<FUSED, F16>(s2, rest2, rest),
                total::<FUSED, F16>(s3, rest3, rest),
            ];
            c.copy_from_slice(&totals[..c.len()]);
        }
        #[inline(always)]
        fn all<const FUSED: bool, const F16: bool>(
            w: &[u16], stride: usize, a: &[f32], depth: usize, c: &mut [&mut [f32]],
        ) {
            let width = c[0].len();
            // The rows of `a` take turns with the same rows of `w`, which then are in cache.
            for first in (0..width).step_by(4) {
                for (i, c) in c.iter_mut().enumerate() {
                    let c = &mut c[first..width.min(first + 4)];
                    four::<FUSED, F16>(w, stride, first, &a[i * depth..][..depth], c);
                }
            }
        }
        match format {
            HalfFormat::F16 => all::<FUSED, true>(w, stride, a, depth, c),
            HalfFormat::Bf16 => all::<FUSED, false>(w, stride, a, depth, c),
        }
    }
}

/// Columns of a task, where the rows of the matrix are contiguous: enough that the memory is read in long runs.
const BAND: usize = 1024;
/// Rows of a task. Both depend on the sizes alone, so that the sums are the same with any number of threads.
const PART: usize = 256;
/// Rows that are added at once.
const STEP: usize = 8;

/// As [`dots`], where the rows of `b` are contiguous. A task adds up some rows of some columns.
pub(super) fn sums(a: &[f32], b: HalfMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    let (depth, columns) = (b.rows, b.columns);
    let band = BAND.min(columns);
    let (parts, bands, rows) = (depth.div_ceil(PART), columns.div_ceil(band), c.len() / columns);
    // `[part][band][row][column of the band]`
    let size = rows * band;
    let mut sums = vec![0.0; parts * bands * size];
    let run = |(task, sums): (usize, &mut [f32])| {
        let (from, first) = (task / bands * PART, task % bands * band);
        let (used, width) = (PART.min(depth - from), band.min(columns - first));
        let a_rows = a.chunks_exact(depth).map(|a| &a[from..][..used]);
        for at in (0..used).step_by(STEP) {
            let w = &b.data[(from + at) * b.stride + first..];
            for (a, sums) in a_rows.clone().zip(sums.chunks_exact_mut(band)) {
                add_rows(w, b.format, b.stride, &a[at..used.min(at + STEP)], &mut sums[..width]);
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
    /// Adds at most [`STEP`] rows of `w`, each times an element of `a`.
    fn add_rows<FUSED>(w: &[u16], format: HalfFormat, stride: usize, a: &[f32], sums: &mut [f32]) {
        #[inline(always)]
        fn add<const FUSED: bool, const F16: bool, const R: usize>(w: &[u16], stride: usize, a: &[f32; R], sums: &mut [f32]) {
            let n = sums.len();
            let (chunks, rest) = sums.as_chunks_mut::<LANES>();
            let count = chunks.len();
            let mut rows: [&[[u16; LANES]]; R] = [&[]; R];
            for r in 0..R {
                rows[r] = &w[r * stride..][..n].as_chunks::<LANES>().0[..count];
            }
            for k in 0..count {
                let mut next = chunks[k];
                for r in 0..R {
                    for j in 0..LANES {
                        next[j] = fma::<FUSED>(a[r], number::<F16>(rows[r][k][j]), next[j]);
                    }
                }
                chunks[k] = next;
            }
            for (j, sum) in rest.iter_mut().enumerate() {
                for r in 0..R {
                    *sum = fma::<FUSED>(a[r], number::<F16>(w[r * stride + count * LANES + j]), *sum);
                }
            }
        }
        #[inline(always)]
        fn all<const FUSED: bool, const F16: bool>(w: &[u16], stride: usize, a: &[f32], sums: &mut [f32]) {
            if let Ok(a) = a.try_into() {
                return add::<FUSED, F16, STEP>(w, stride, a, sums);
            }
            for (r, &a) in a.iter().enumerate() {
                add::<FUSED, F16, 1>(&w[r * stride..], stride, &[a], sums);
            }
        }
        match format {
            HalfFormat::F16 => all::<FUSED, true>(w, stride, a, sums),
            HalfFormat::Bf16 => all::<FUSED, false>(w, stride, a, sums),
        }
    }
}
