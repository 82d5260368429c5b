//! Products of packed rows with windows that are read in place.

use super::product::store;
use crate::{
    dispatch::vectorized,
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
/// The innermost loop is that of the matrix product's [`microkernel`](crate::matmul::microkernel::microkernel).
///
/// # Safety
/// From each of the offsets plus `at` on, the window must have `P * NR` elements.
#[inline(always)]
unsafe fn microkernel_in_place<const FUSED: bool, const M: usize, const P: usize>(
    a: &[[f32; MR]],
    window: &[f32],
    offsets: &[usize],
    at: usize,
) -> [[[f32; NR]; P]; M] {
    let mut sums = [[[0.0; NR]; P]; M];
    let a = &a[..offsets.len()];
    for k in 0..offsets.len() {
        let column = a[k];
        for p in 0..P {
            let first = at + offsets[k] + p * NR;
            // SAFETY: as the caller guarantees.
            let pixels = unsafe { window.as_ptr().add(first).cast::<[f32; NR]>().read() };
            for (sums, x) in sums.iter_mut().zip(column) {
                sums[p] = add_product::<FUSED>(x, &pixels, sums[p]);
            }
        }
    }
    sums
}

/// Returns `sum + x * b`.
#[inline(always)]
fn add_product<const FUSED: bool>(x: f32, b: &[f32; NR], mut sum: [f32; NR]) -> [f32; NR] {
    // Of plain loops here, the compiler makes vectors that begin at the second element, and moves elements between them.
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every CPU of this target has these instructions, and each address is that of 4 elements.
    unsafe {
        use std::arch::aarch64::{vfmaq_n_f32, vld1q_f32, vst1q_f32};
        for (b, sum) in b.as_chunks::<4>().0.iter().zip(sum.as_chunks_mut::<4>().0) {
            vst1q_f32(sum.as_mut_ptr(), vfmaq_n_f32(vld1q_f32(sum.as_ptr()), vld1q_f32(b.as_ptr()), x));
        }
    }
    #[cfg(not(target_arch = "aarch64"))]
    for j in 0..NR {
        sum[j] = crate::math::fma::<FUSED>(x, b[j], sum[j]);
    }
    sum
}

vectorized! {
    fn narrow_product<FUSED>(
        strips: &PackedA<MR>, rows: [usize; 2], first: usize, window: &[f32], offsets: &[usize], count: usize,
        c: &mut [[f32; NR]],
    ) {
        let last = window.len().checked_sub(count * NR);
        assert!(offsets.iter().all(|&offset| Some(offset) <= last), "an offset is outside the window");
        macro_rules! strip {
            ($height:literal, $panels:literal, $row:expr, $a:expr, $panel:expr) => {{
                // SAFETY: the assertion above holds for all `count` panels, and none beyond them is read.
                let sums = unsafe {
                    microkernel_in_place::<FUSED, $height, $panels>(&$a[first..], window, offsets, $panel * NR)
                };
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
