//! The innermost loop of every product: a tile of results that stays in registers while the depth is walked.

use crate::math::fma;

/// Columns of a tile: two registers of AVX2.
pub(crate) const WIDTH: usize = 16;
/// Rows of the highest tile: 12 registers of sums, which leaves two for the columns and two for the rows.
pub(crate) const HEIGHT: usize = 6;

/// The product of `M` rows and `P` panels of columns. `a(k)` is column `k` of the rows; `b[p][k]` row `k` of a panel.
///
/// # Panics
/// If a panel is shorter than `depth`.
#[inline(always)]
pub(crate) fn tile<const FUSED: bool, const M: usize, const P: usize>(
    depth: usize,
    a: impl Fn(usize) -> [f32; M],
    mut b: [&[[f32; WIDTH]]; P],
) -> [[[f32; WIDTH]; P]; M] {
    // The compiler sees here that no index of the loop is out of range; not in `map`, which is not always inlined.
    for panel in &mut b {
        *panel = &panel[..depth];
    }
    let mut sums = [[[0.0; WIDTH]; P]; M];
    for k in 0..depth {
        let a = a(k);
        for p in 0..P {
            let b = &b[p][k];
            for i in 0..M {
                for j in 0..WIDTH {
                    sums[i][p][j] = fma::<FUSED>(a[i], b[j], sums[i][p][j]);
                }
            }
        }
    }
    sums
}
