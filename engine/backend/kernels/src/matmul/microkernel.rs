//! Microkernel: the innermost loop of every product. Its tile of results stays in registers over the whole depth.

use crate::math::fma;

/// Number of columns of the microkernel (NR): two AVX2 registers.
pub(crate) const NR: usize = 16;
/// Number of rows of the largest microkernel (MR): 12 accumulator registers, which leaves two for the columns and two for the
/// rows.
pub(crate) const MR: usize = 6;

/// Returns the product of `M` rows and `P` panels of columns. Element `k` of row `i` is `a[i][k * step]`; `b[p][k]` is row `k`
/// of a panel.
///
/// # Panics
/// If a row or a panel has fewer than `depth` elements.
#[inline(always)]
pub(crate) fn microkernel<const FUSED: bool, const M: usize, const P: usize>(
    depth: usize,
    a: [&[f32]; M],
    step: usize,
    b: [&[[f32; NR]]; P],
) -> [[[f32; NR]; P]; M] {
    for row in a {
        assert!(row.len().div_ceil(step) >= depth, "a row is too short");
    }
    for panel in b {
        assert!(panel.len() >= depth, "a panel is too short");
    }
    let mut sums = [[[0.0; NR]; P]; M];
    // If a bound were checked in this loop, the compiler would write the sums to memory in each iteration.
    for k in 0..depth {
        let mut column = [0.0; M];
        for i in 0..M {
            // SAFETY: the row has at least `depth` elements at multiples of `step`, as asserted above.
            column[i] = unsafe { *a[i].get_unchecked(k * step) };
        }
        for p in 0..P {
            // SAFETY: the panel has at least `depth` rows, as asserted above.
            let b = unsafe { b[p].get_unchecked(k) };
            for i in 0..M {
                for j in 0..NR {
                    sums[i][p][j] = fma::<FUSED>(column[i], b[j], sums[i][p][j]);
                }
            }
        }
    }
    sums
}
