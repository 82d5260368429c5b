//! Microkernel: the innermost loop of every product. Its tile of results stays in registers over the whole depth.

use crate::math::fma;

/// Number of columns of the microkernel (NR): two AVX2 registers.
pub(crate) const NR: usize = 16;
/// Number of rows of the largest microkernel (MR): 12 accumulator registers, which leaves two for the columns and two for the
/// rows.
pub(crate) const MR: usize = 6;

/// Returns the product of `M` rows and `P` panels of columns. `a(k)` is column `k` of the rows; `b[p][k]` is row `k` of
/// a panel.
///
/// # Panics
/// If a panel is shorter than `depth`.
#[inline(always)]
pub(crate) fn microkernel<const FUSED: bool, const M: usize, const P: usize>(
    depth: usize,
    a: impl Fn(usize) -> [f32; M],
    mut b: [&[[f32; NR]]; P],
) -> [[[f32; NR]; P]; M] {
    // Shows the compiler that all indices of the loop are in range. Not in `map`, which is not always inlined.
    for panel in &mut b {
        *panel = &panel[..depth];
    }
    let mut sums = [[[0.0; NR]; P]; M];
    for k in 0..depth {
        let a = a(k);
        for p in 0..P {
            let b = &b[p][k];
            for i in 0..M {
                for j in 0..NR {
                    sums[i][p][j] = fma::<FUSED>(a[i], b[j], sums[i][p][j]);
                }
            }
        }
    }
    sums
}
