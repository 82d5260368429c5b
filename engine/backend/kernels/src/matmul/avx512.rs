//! AVX-512 microkernels. The registers hold tiles four times as large: 12 rows by two panels. Each loaded element is used in
//! more products, so panels may be read from the second-level cache.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, __m512bh, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps,
    _mm512_maskz_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use std::cell::Cell;

#[cfg(target_arch = "x86_64")]
use super::target::Target;
use super::{microkernel::NR, packed_a::PackedA};
#[cfg(target_arch = "x86_64")]
use crate::dispatch::{CpuCapability, prefetch};

/// Number of rows of the largest AVX-512 microkernel (MR): 24 accumulator registers.
pub(crate) const MR_AVX512: usize = 12;

thread_local! {
    static STRIPS: Cell<PackedA<MR_AVX512>> = Cell::default();
}

/// Lends this thread's buffer of packed rows. It is reused, because first-touch page faults of fresh memory would cost as
/// much as packing.
pub(crate) fn with_strips<R>(run: impl FnOnce(&mut PackedA<MR_AVX512>) -> R) -> R {
    let mut strips = STRIPS.take();
    let result = run(&mut strips);
    STRIPS.set(strips);
    result
}

/// Returns true if this CPU has AVX-512 and its use is not disabled; see [`CpuCapability::get`].
#[inline(always)]
pub(crate) fn usable() -> bool {
    #[cfg(target_arch = "x86_64")]
    return CpuCapability::get() >= CpuCapability::Avx512;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Evaluates an expression with the number of panels `P` (2 or 1) and the strip height `M` as constants.
#[cfg(target_arch = "x86_64")]
macro_rules! by_height {
    ($pair:expr, $height:expr, $run:expr) => {
        by_height!($pair, $height, $run, 1 2 3 4 5 6 7 8 9 10 11 12)
    };
    ($pair:expr, $height:expr, $run:expr, $($each:literal)*) => {
        match ($pair, $height) {
            $((true, $each) => {
                const M: usize = $each;
                const P: usize = 2;
                $run
            })*
            $((false, $each) => {
                const M: usize = $each;
                const P: usize = 1;
                $run
            })*
            (_, height) => unreachable!("a strip of {height} rows"),
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(crate) use by_height;

impl PackedA<MR_AVX512> {
    /// Multiplies by panels, `pitch` apart, with `columns` columns in total. The rows of `c` are `stride` apart.
    ///
    /// # Panics
    /// If the CPU has no AVX-512 (see [`usable`]), or `c` is too small.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn multiply(
        &self,
        panels: &[[f32; NR]],
        pitch: usize,
        columns: usize,
        c: &mut [f32],
        stride: usize,
        start: Start<'_>,
    ) {
        assert!(usable(), "no AVX-512");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the assertion above shows that the CPU has AVX-512. `c` is an exclusive borrow of initialised memory.
        unsafe {
            self.multiply_at::<false>([0, self.rows()], panels, pitch, columns, &Target::of(c, stride), start);
        }
    }

    /// Writes the product of packed rows and a window that is read in place. Of each row, as many columns as there are
    /// offsets are used, from `first` on. Row `k` of the right-hand matrix consists of `count` panels of window elements from
    /// `offsets[k]` on. The rows must form whole strips.
    ///
    /// # Panics
    /// If the CPU has no AVX-512; see [`usable`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn multiply_in_place(
        &self,
        rows: [usize; 2],
        first: usize,
        window: &[f32],
        offsets: &[usize],
        count: usize,
        c: &mut [[f32; NR]],
    ) {
        assert!(usable() && first + offsets.len() <= self.depth(), "no AVX-512, or {} offsets", offsets.len());
        assert!(self.begin_and_end(rows), "rows {rows:?} are not whole strips");
        let c = &mut c[..(rows[1] - rows[0]) * count];
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the assertions above show that the CPU has AVX-512 and that the rows form whole strips. `c` has been cut to
        // `count` panels per row.
        unsafe {
            self.multiply_in_place_at(rows, first, window, offsets, count, c);
        }
    }

    /// # Safety
    /// The CPU must have AVX-512, the rows must form whole strips, and `c` must have `count` panels per row.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn multiply_in_place_at(
        &self,
        rows: [usize; 2],
        first: usize,
        window: &[f32],
        offsets: &[usize],
        count: usize,
        c: &mut [[f32; NR]],
    ) {
        let c = c.as_mut_ptr().cast::<f32>();
        for panel in (0..count).step_by(2) {
            let window = &window[panel * NR..];
            for (row, height, a) in self.within(rows) {
                let a = &a[first..][..offsets.len()];
                // SAFETY: `row` is within `rows` and `panel` is less than `count`, so the offset is within `c`, which has
                // `count` panels per row, as the caller guarantees.
                let c = unsafe { c.add(((row - rows[0]) * count + panel) * NR) };
                by_height!(panel + 2 <= count, height, {
                    let b = |k: usize, p: usize| {
                        let strip_bounds = &window[offsets[k] + p * NR..];
                        strip_bounds.first_chunk().expect("room behind the last place")
                    };
                    // SAFETY: the strip's `M` rows are within `rows`, which form whole strips, and `P` panels from `panel` on
                    // are within `count`. `c` is borrowed exclusively.
                    unsafe { microkernel::<M, P>(a, b, c, count * NR, P * NR, Start::Zero) }
                });
            }
        }
    }

    /// Like [`multiply`](Self::multiply), for the strips from row `rows[0]` to row `rows[1]`, which must be strip boundaries.
    /// The target starts with the results of row 0 even if row 0 is not included. With `PAIRS`, the elements are pairs of bf16.
    ///
    /// # Panics
    /// If the rows do not form whole strips, or the target is too small.
    ///
    /// # Safety
    /// The CPU must have AVX-512, and with `PAIRS` AVX512-BF16. No other thread may access these rows and columns of the
    /// target, and with [`Start::There`] they must be initialised.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx2,fma")]
    pub unsafe fn multiply_at<const PAIRS: bool>(
        &self,
        rows: [usize; 2],
        panels: &[[f32; NR]],
        pitch: usize,
        columns: usize,
        c: &Target<'_>,
        start: Start<'_>,
    ) {
        assert!(self.begin_and_end(rows), "rows {rows:?} are not whole strips");
        let (c, stride) = (c.first(rows[1], columns), c.stride());
        let (depth, count) = (self.depth(), columns.div_ceil(NR));
        // The panels are read from the second-level cache, and each strip only once from the next one.
        for (row, height, a) in self.within(rows) {
            let a = &a[..depth];
            for panel in (0..count).step_by(2) {
                let pair = panel + 2 <= count;
                let first = &panels[panel * pitch..][..depth];
                let second = if pair { &panels[(panel + 1) * pitch..][..depth] } else { first };
                let (start, width) = (start.from(panel * NR), columns - panel * NR);
                // SAFETY: `first` checked that the target has `rows[1]` rows of `columns`; `row` is less than `rows[1]`, and
                // the column less than `columns`.
                let c = unsafe { c.add(row * stride + panel * NR) };
                by_height!(pair, height, {
                    let b = |k: usize, p: usize| if p == 0 { &first[k] } else { &second[k] };
                    // SAFETY: the strip's `M` rows end before `rows[1]`, and `width` columns are left of `columns`. The
                    // caller guarantees that no other thread accesses them, and that the CPU has the instructions.
                    unsafe {
                        match PAIRS {
                            true => microkernel_of_pairs::<M, P>(a, b, c, stride, width, start),
                            false => microkernel::<M, P>(a, b, c, stride, width, start),
                        }
                    }
                });
            }
        }
    }
}

/// Initial values of the accumulators.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
    /// Values in memory.
    There,
    /// A value per column, the same in each row.
    Bias(&'a [f32]),
}

impl<'a> Start<'a> {
    /// Returns the initial values from a column on.
    pub fn from(self, column: usize) -> Self {
        match self {
            Self::Bias(bias) => Self::Bias(&bias[column..]),
            other => other,
        }
    }
}

/// Returns the mask of the lanes of panel `p` that are before column `width`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn lanes(p: usize, width: usize) -> u16 {
    ((1_u32 << width.saturating_sub(p * NR).min(NR)) - 1) as u16
}

/// Defines a microkernel for some instruction sets, with the function that adds the product of two registers to a third.
macro_rules! microkernel {
    ($(#[$doc:meta])* $name:ident, $features:literal, $multiply_add:expr) => {
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        #[inline]
        // The accumulators stay in registers only if they are indexed by constants.
        #[allow(clippy::needless_range_loop)]
        pub(crate) unsafe fn $name<'a, const M: usize, const P: usize>(
            a: &[[f32; MR_AVX512]],
            b: impl Fn(usize, usize) -> &'a [f32; NR],
            c: *mut f32,
            stride: usize,
            width: usize,
            start: Start<'_>,
        ) {
            // The results are far apart, so they are prefetched during the computation.
            for i in 0..M {
                for p in 0..P {
                    prefetch(c.wrapping_add(i * stride + p * NR));
                }
            }
            let mut sums: [[__m512; P]; M] = [[_mm512_setzero_ps(); P]; M];
            if let Start::Bias(bias) = start {
                let bias = &bias[..bias.len().min(width)];
                for p in 0..P {
                    let from = bias.as_ptr().wrapping_add(p * NR);
                    // SAFETY: the mask selects only lanes within the slice.
                    let first = unsafe { _mm512_maskz_loadu_ps(lanes(p, bias.len()), from) };
                    for i in 0..M {
                        sums[i][p] = first;
                    }
                }
            }
            for k in 0..a.len() {
                let mut row = [_mm512_setzero_ps(); P];
                for p in 0..P {
                    // SAFETY: `b` returns an array of 16 elements.
                    row[p] = unsafe { _mm512_loadu_ps(b(k, p).as_ptr()) };
                }
                for i in 0..M {
                    let x = _mm512_set1_ps(a[k][i]);
                    for p in 0..P {
                        sums[i][p] = $multiply_add(x, row[p], sums[i][p]);
                    }
                }
            }
            let add = matches!(start, Start::There);
            if width >= P * NR {
                for i in 0..M {
                    for p in 0..P {
                        // SAFETY: row `i` is less than `M`, and `(p + 1) * NR` is at most `width`, so the caller guarantees
                        // that these elements are valid.
                        unsafe {
                            let c = c.add(i * stride + p * NR);
                            let sum = if add { _mm512_add_ps(_mm512_loadu_ps(c), sums[i][p]) } else { sums[i][p] };
                            _mm512_storeu_ps(c, sum);
                        }
                    }
                }
            } else {
                for i in 0..M {
                    for p in 0..P {
                        let (c, mask) = (c.wrapping_add(i * stride + p * NR), lanes(p, width));
                        // SAFETY: the mask selects only lanes within the row's first `width` columns, which the caller
                        // guarantees to be valid. Masked lanes are not accessed.
                        unsafe {
                            let before = if add { _mm512_maskz_loadu_ps(mask, c) } else { _mm512_setzero_ps() };
                            _mm512_mask_storeu_ps(c, mask, _mm512_add_ps(before, sums[i][p]));
                        }
                    }
                }
            }
        }
    };
}

microkernel! {
    /// Computes the product of `M` rows of a strip and `P` panels, where `b(k, p)` is row `k` of panel `p`, for the first
    /// `width` columns of `c`.
    ///
    /// # Safety
    /// The CPU must have AVX-512. `c` must point to `M` rows, `stride` apart, with as many columns as the panels but at most
    /// `width`, which no other thread accesses. With [`Start::There`] they must be initialised.
    microkernel, "avx512f,avx2,fma", _mm512_fmadd_ps
}

microkernel! {
    /// Like [`microkernel`], for bf16: each element of `a` and of the panels is a pair of numbers that follow each other along
    /// the summed axis, the first one in the lower bits. The products are added in f32; subnormals count as 0.
    ///
    /// # Safety
    /// As for [`microkernel`], and the CPU must have AVX512-BF16.
    microkernel_of_pairs, "avx512f,avx512bf16,avx2,fma", |x: __m512, y: __m512, sum: __m512| {
        _mm512_dpbf16_ps(sum, pairs(x), pairs(y))
    }
}

/// Views a register as pairs of bf16.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn pairs(x: __m512) -> __m512bh {
    // SAFETY: both types are 512 bits, of which every value is valid.
    unsafe { std::mem::transmute::<__m512, __m512bh>(x) }
}

/// Returns true if this CPU has products of bf16, and AVX-512 is [usable].
pub(crate) fn multiplies_bf16() -> bool {
    #[cfg(target_arch = "x86_64")]
    return usable() && std::arch::is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    false
}
