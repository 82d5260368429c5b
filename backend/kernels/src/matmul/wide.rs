//! Products on CPUs with AVX-512, whose registers hold tiles four times as large: 12 rows by two panels. Of what a tile
//! reads, each element then serves more products, and panels may come from the second-level cache.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_mask_storeu_ps, _mm512_maskz_loadu_ps,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use std::cell::Cell;

#[cfg(target_arch = "x86_64")]
use super::target::Target;
use super::{strips::Strips, tile::WIDTH};
#[cfg(target_arch = "x86_64")]
use crate::dispatch::{Instructions, prefetch};

/// Rows of the highest tile: 24 registers of sums.
pub(crate) const TALL: usize = 12;

thread_local! {
    static STRIPS: Cell<Strips<TALL>> = Cell::default();
}

/// Lends what held this thread's last strips. Fresh memory would cost as much as filling it.
pub(crate) fn with_strips<R>(run: impl FnOnce(&mut Strips<TALL>) -> R) -> R {
    let mut strips = STRIPS.take();
    let result = run(&mut strips);
    STRIPS.set(strips);
    result
}

/// Whether this CPU can.
#[inline(always)]
pub(crate) fn usable() -> bool {
    #[cfg(target_arch = "x86_64")]
    return Instructions::here() == Instructions::Avx512;
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Evaluates something for a pair of panels or a single one, `P`, and the height of a strip, `M`, as constants.
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

impl Strips<TALL> {
    /// The product with some panels, `pitch` apart. `columns` is what they have together. The rows of `c` are `stride` apart.
    ///
    /// # Panics
    /// If there is no AVX-512, for which see [`usable`], or `c` is too small.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn multiply(
        &self,
        panels: &[[f32; WIDTH]],
        pitch: usize,
        columns: usize,
        c: &mut [f32],
        stride: usize,
        start: Start<'_>,
    ) {
        assert!(usable(), "no AVX-512");
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the line above is that the CPU has AVX-512; `c` is borrowed exclusively, and holds numbers.
        unsafe {
            self.multiply_at([0, self.rows()], panels, pitch, columns, &Target::of(c, stride), start);
        }
    }

    /// Writes the product of some rows' columns, as many as there are offsets from `first` on, with what is found in a window
    /// at each of the offsets and the places that follow it, for so many panels of places. The rows must be those of whole
    /// strips.
    ///
    /// # Panics
    /// If there is no AVX-512; see [`usable`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn multiply_in_place(
        &self,
        rows: [usize; 2],
        first: usize,
        window: &[f32],
        offsets: &[usize],
        count: usize,
        c: &mut [[f32; WIDTH]],
    ) {
        assert!(usable() && first + offsets.len() <= self.depth(), "no AVX-512, or {} offsets", offsets.len());
        assert!(self.begin_and_end(rows), "rows {rows:?} are not whole strips");
        let c = &mut c[..(rows[1] - rows[0]) * count];
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the first line asserts that the CPU has AVX-512; `c` has `count` panels for each of the rows.
        unsafe {
            self.multiply_in_place_at(rows, first, window, offsets, count, c);
        }
    }

    /// # Safety
    /// The CPU has AVX-512, the rows are those of whole strips, and `c` has `count` panels for each of them.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn multiply_in_place_at(
        &self,
        rows: [usize; 2],
        first: usize,
        window: &[f32],
        offsets: &[usize],
        count: usize,
        c: &mut [[f32; WIDTH]],
    ) {
        let c = c.as_mut_ptr().cast::<f32>();
        for panel in (0..count).step_by(2) {
            let window = &window[panel * WIDTH..];
            for (row, height, a) in self.within(rows) {
                let a = &a[first..][..offsets.len()];
                // SAFETY: `row` is one of the rows, and `panel` less than `count`.
                let c = unsafe { c.add(((row - rows[0]) * count + panel) * WIDTH) };
                by_height!(panel + 2 <= count, height, {
                    let b = |k: usize, p: usize| {
                        let places = &window[offsets[k] + p * WIDTH..];
                        places.first_chunk().expect("room behind the last place")
                    };
                    // SAFETY: the strip's `M` rows are among the rows, and `P` panels of them from this one on among the
                    // `count`.
                    unsafe { tile::<M, P>(a, b, c, count * WIDTH, P * WIDTH, Start::Zero) }
                });
            }
        }
    }

    /// As [`multiply`](Self::multiply) for the strips from one row to another, which are where strips begin and end. The
    /// results of row 0, the first one or not, are at the target's beginning.
    ///
    /// # Panics
    /// If the rows are not those of whole strips, or the target is too small.
    ///
    /// # Safety
    /// The CPU has AVX-512, no other thread uses these rows and columns of the target, and with [`Start::There`] they hold
    /// numbers.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx2,fma")]
    pub unsafe fn multiply_at(
        &self,
        rows: [usize; 2],
        panels: &[[f32; WIDTH]],
        pitch: usize,
        columns: usize,
        c: &Target<'_>,
        start: Start<'_>,
    ) {
        assert!(self.begin_and_end(rows), "rows {rows:?} are not whole strips");
        let (c, stride) = (c.first(rows[1], columns), c.stride());
        let (depth, count) = (self.depth(), columns.div_ceil(WIDTH));
        for panel in (0..count).step_by(2) {
            let pair = panel + 2 <= count;
            let first = &panels[panel * pitch..][..depth];
            let second = if pair { &panels[(panel + 1) * pitch..][..depth] } else { first };
            let (start, width) = (start.from(panel * WIDTH), columns - panel * WIDTH);
            for (row, height, a) in self.within(rows) {
                // SAFETY: the target has `rows[1]` rows of `columns`; `row` is less than `rows[1]` and the column less than
                // `columns`.
                let c = unsafe { c.add(row * stride + panel * WIDTH) };
                let a = &a[..depth];
                by_height!(pair, height, {
                    let b = |k: usize, p: usize| if p == 0 { &first[k] } else { &second[k] };
                    // SAFETY: the strip's `M` rows end before `rows[1]`, and `width` columns are left of `columns`. The
                    // caller says that they are nobody else's.
                    unsafe { tile::<M, P>(a, b, c, stride, width, start) }
                });
            }
        }
    }
}

/// What the sums of a tile begin with.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a> {
    Zero,
    /// What is there.
    There,
    /// In each row these numbers, one for each column.
    Bias(&'a [f32]),
}

impl<'a> Start<'a> {
    /// From a column on.
    pub fn from(self, column: usize) -> Self {
        match self {
            Self::Bias(bias) => Self::Bias(&bias[column..]),
            other => other,
        }
    }
}

/// The lanes of panel `p` that lie before column `width`.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn lanes(p: usize, width: usize) -> u16 {
    ((1_u32 << width.saturating_sub(p * WIDTH).min(WIDTH)) - 1) as u16
}

/// The product of `M` rows of a strip and `P` panels, of which `b(k, p)` is row `k` of panel `p`, for the first `width`
/// columns of `c`.
///
/// # Safety
/// The CPU has AVX-512. `M` rows of as many columns as the panels have, but at most `width`, lie at `c`, `stride` apart, and
/// no other thread uses them; with [`Start::There`] they hold numbers.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx2,fma")]
#[inline]
// The sums stay in registers where nothing but constants numbers them.
#[allow(clippy::needless_range_loop)]
pub(crate) unsafe fn tile<'a, const M: usize, const P: usize>(
    a: &[[f32; TALL]],
    b: impl Fn(usize, usize) -> &'a [f32; WIDTH],
    c: *mut f32,
    stride: usize,
    width: usize,
    start: Start<'_>,
) {
    // The results lie far apart: they are asked for while the tile is computed.
    for i in 0..M {
        for p in 0..P {
            prefetch(c.wrapping_add(i * stride + p * WIDTH));
        }
    }
    let mut sums: [[__m512; P]; M] = [[_mm512_setzero_ps(); P]; M];
    if let Start::Bias(bias) = start {
        let bias = &bias[..bias.len().min(width)];
        for p in 0..P {
            // SAFETY: the mask leaves what lies in the slice.
            let first = unsafe { _mm512_maskz_loadu_ps(lanes(p, bias.len()), bias.as_ptr().wrapping_add(p * WIDTH)) };
            for i in 0..M {
                sums[i][p] = first;
            }
        }
    }
    for k in 0..a.len() {
        let mut row = [_mm512_setzero_ps(); P];
        for p in 0..P {
            // SAFETY: an array of 16 numbers is read.
            row[p] = unsafe { _mm512_loadu_ps(b(k, p).as_ptr()) };
        }
        for i in 0..M {
            let x = _mm512_set1_ps(a[k][i]);
            for p in 0..P {
                sums[i][p] = _mm512_fmadd_ps(x, row[p], sums[i][p]);
            }
        }
    }
    let add = matches!(start, Start::There);
    if width >= P * WIDTH {
        for i in 0..M {
            for p in 0..P {
                // SAFETY: row `i` of the `M`, of which `(p + 1) * WIDTH` columns are no more than `width`.
                unsafe {
                    let c = c.add(i * stride + p * WIDTH);
                    let sum = if add { _mm512_add_ps(_mm512_loadu_ps(c), sums[i][p]) } else { sums[i][p] };
                    _mm512_storeu_ps(c, sum);
                }
            }
        }
    } else {
        for i in 0..M {
            for p in 0..P {
                let (c, mask) = (c.wrapping_add(i * stride + p * WIDTH), lanes(p, width));
                // SAFETY: the mask leaves what lies in the row's first `width` columns; what it hides is not touched.
                unsafe {
                    let before = if add { _mm512_maskz_loadu_ps(mask, c) } else { _mm512_setzero_ps() };
                    _mm512_mask_storeu_ps(c, mask, _mm512_add_ps(before, sums[i][p]));
                }
            }
        }
    }
}
