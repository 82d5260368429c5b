//! Strips of results: a few rows of the columns of some panels.

use super::microkernel::{NR, microkernel};
use crate::dispatch::prefetch;

/// Adds the first `height` rows and `width` columns of a tile to `c`.
///
/// By value and without iterators: if any remaining call could take the address of the accumulators, they would be written to
/// memory in every iteration of the innermost loop, which then takes three times as long.
#[inline(always)]
pub(super) fn add_tile<const M: usize, const P: usize>(
    sums: [[[f32; NR]; P]; M],
    c: &mut [f32],
    stride: usize,
    column: usize,
    height: usize,
    width: usize,
) {
    for i in 0..M {
        if i >= height {
            return;
        }
        let c = &mut c[i * stride + column..][..width];
        if width == P * NR {
            for p in 0..P {
                for j in 0..NR {
                    c[p * NR + j] += sums[i][p][j];
                }
            }
        } else {
            for p in 0..P {
                for j in 0..NR {
                    if p * NR + j < width {
                        c[p * NR + j] += sums[i][p][j];
                    }
                }
            }
        }
    }
}

/// Prefetches the memory of a microkernel's results, which are far apart, during the computation.
#[inline(always)]
fn prefetch_rows<const M: usize>(c: &[f32], stride: usize, column: usize) {
    for i in 0..M {
        prefetch(c.as_ptr().wrapping_add(i * stride + column));
    }
}

/// Adds the products of `M` rows and the panels `from..to` of one block, `pitch` apart, `P` at a time. The rows of `a` are
/// `a_stride` apart.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) fn add_strip<const FUSED: bool, const M: usize, const P: usize>(
    panels: &[[f32; NR]],
    from: usize,
    to: usize,
    columns: usize,
    pitch: usize,
    depth: usize,
    a: &[f32],
    a_stride: usize,
    c: &mut [f32],
    c_stride: usize,
) {
    // A loop, because neither `from_fn` nor `map` is always inlined.
    let mut rows: [&[f32]; M] = [&[]; M];
    for i in 0..M {
        rows[i] = &a[i * a_stride..][..depth];
    }
    let mut at = from;
    while at + P <= to {
        let mut b: [&[[f32; NR]]; P] = [&[]; P];
        for p in 0..P {
            b[p] = &panels[(at + p) * pitch..][..depth];
        }
        prefetch_rows::<M>(c, c_stride, (at - from) * NR);
        let sums = microkernel::<FUSED, M, P>(depth, rows, 1, b);
        let width = (P * NR).min(columns - at * NR);
        add_tile(sums, c, c_stride, (at - from) * NR, M, width);
        at += P;
    }
    while at < to {
        prefetch_rows::<M>(c, c_stride, (at - from) * NR);
        let sums = microkernel::<FUSED, M, 1>(depth, rows, 1, [&panels[at * pitch..][..depth]]);
        add_tile(sums, c, c_stride, (at - from) * NR, M, NR.min(columns - at * NR));
        at += 1;
    }
}
