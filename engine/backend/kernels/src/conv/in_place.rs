//! Products of packed rows with windows that are read in place.

use super::product::store;
use crate::{
    dispatch::vectorized,
    math::fma,
    matmul::{MR, MR_AVX512, NR, PackedA, has_avx512},
};

/// Packed rows (packed A) for the microkernels of this CPU.
pub(super) enum Rows {
    Portable(PackedA<MR>),
    Avx512(PackedA<MR_AVX512>),
}

impl Rows {
    /// Packs `rows` rows of length `depth` of `a`.
    pub fn new(a: &[f32], rows: usize, depth: usize) -> Self {
        fn strips<const H: usize>(a: &[f32], rows: usize, depth: usize) -> PackedA<H> {
            let mut strips = PackedA::default();
            strips.pack(a, |row| row * depth, rows, depth);
            strips
        }
        // With few rows, several panels at once keep more accumulators busy.
        if rows >= 4 && has_avx512() {
            Self::Avx512(strips(a, rows, depth))
        } else {
            Self::Portable(strips(a, rows, depth))
        }
    }

    /// Multiplies rows, which must form whole strips, by a window. Uses as many columns of the rows as there are offsets,
    /// from `first` on. The window is read at each of the offsets, for `count` panels of pixels.
    pub fn multiply(
        &self,
        rows: [usize; 2],
        first: usize,
        window: &[f32],
        offsets: &[usize],
        count: usize,
        c: &mut [[f32; NR]],
    ) {
        match self {
            Self::Portable(strips) => narrow_product(strips, rows, first, window, offsets, count, c),
            Self::Avx512(strips) => strips.multiply_in_place(rows, first, window, offsets, count, c),
        }
    }

    /// Returns the boundaries of `parts` parts of whole strips, with about equal numbers of rows.
    pub fn cuts(&self, parts: usize) -> Vec<usize> {
        match self {
            Self::Portable(strips) => strips.cuts(parts),
            Self::Avx512(strips) => strips.cuts(parts),
        }
    }
}

/// Product of `M` rows and a window, read at each of the offsets.
///
/// The innermost loop is that of the matrix product's microkernel.
#[inline(always)]
fn microkernel_in_place<const FUSED: bool, const M: usize, const P: usize>(
    a: &[[f32; MR]],
    window: &[f32],
    offsets: &[usize],
    at: usize,
) -> [[[f32; NR]; P]; M] {
    let mut sums = [[[0.0; NR]; P]; M];
    let (a, window) = (&a[..offsets.len()], &window[at..]);
    for k in 0..offsets.len() {
        let pixels = &window[offsets[k]..offsets[k] + P * NR];
        // One element at a time; otherwise the compiler would load all of them before broadcasting.
        for i in 0..M {
            let x = a[k][i];
            for p in 0..P {
                for j in 0..NR {
                    sums[i][p][j] = fma::<FUSED>(x, pixels[p * NR + j], sums[i][p][j]);
                }
            }
        }
    }
    sums
}

vectorized! {
    fn narrow_product<FUSED>(
        strips: &PackedA<MR>, rows: [usize; 2], first: usize, window: &[f32], offsets: &[usize], count: usize,
        c: &mut [[f32; NR]],
    ) {
        macro_rules! strip {
            ($height:literal, $panels:literal, $row:expr, $a:expr, $panel:expr) => {{
                let sums = microkernel_in_place::<FUSED, $height, $panels>(&$a[first..], window, offsets, $panel * NR);
                store(sums, &mut c[($row - rows[0]) * count + $panel..], count, false);
            }};
        }
        macro_rules! remainder {
            ($height:literal, $panels:literal, $a:expr) => {{
                let mut panel = 0;
                while panel + $panels <= count {
                    strip!($height, $panels, rows[0], $a, panel);
                    panel += $panels;
                }
                while panel < count {
                    strip!($height, 1, rows[0], $a, panel);
                    panel += 1;
                }
            }};
        }
        if let (Some((_, height, a)), None) = (strips.within(rows).next(), strips.within(rows).nth(1))
            && height < 4
        {
            return match height {
                1 => remainder!(1, 4, a),
                2 => remainder!(2, 2, a),
                _ => remainder!(3, 2, a),
            };
        }
        for panel in 0..count {
            for (row, height, a) in strips.within(rows) {
                match height {
                    6 => strip!(6, 1, row, a, panel),
                    5 => strip!(5, 1, row, a, panel),
                    4 => strip!(4, 1, row, a, panel),
                    _ => strip!(3, 1, row, a, panel),
                }
            }
        }
    }
}
