//! Left-hand rows, laid out in the order of a format's codes.

use std::{
    arch::{
        asm,
        x86_64::{
            __m256, __m512, __m512i, _mm512_add_ps, _mm512_and_si512, _mm512_cvtepi32_ps, _mm512_fmadd_ps,
            _mm512_i32gather_epi32, _mm512_i32gather_ps, _mm512_load_ps, _mm512_load_si512, _mm512_mul_ps,
            _mm512_mullo_epi32, _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps,
            _mm512_setzero_si512, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_sub_epi8, _mm512_xor_si512,
        },
    },
    mem::transmute,
};

use super::{LANES, STEP, Wide};
use crate::{
    math::sum,
    quantized::{
        rounded::{BLOCK, RoundedRow},
        row::FACTORS,
    },
};

/// A register in memory.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Line([u32; LANES]);

impl Line {
    fn of_floats(lanes: __m512) -> Self {
        // SAFETY: the types have the same size, and any bits are valid.
        Self(unsafe { transmute::<__m512, [u32; LANES]>(lanes) })
    }

    fn of_integers(lanes: __m512i) -> Self {
        // SAFETY: as above.
        Self(unsafe { transmute::<__m512i, [u32; LANES]>(lanes) })
    }
}

/// A left-hand row, laid out for a format.
pub(super) trait Laid: Sync {
    /// The codes of a half of a step, as they are multiplied.
    type Codes: Copy;

    /// Panics unless the row has values of so many steps and units.
    fn check(&self, steps: usize, units: usize);

    /// Prepares codes.
    ///
    /// # Safety
    /// The CPU must have the instructions of the type.
    unsafe fn codes<W: Wide>(codes: __m512i) -> Self::Codes;

    /// Adds the products of the codes of half `place` of all steps, multiplied by their scales.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes). The row must have the step.
    unsafe fn add<W: Wide>(&self, place: usize, codes: Self::Codes, scales: __m512, totals: __m512) -> __m512;

    /// Returns the values that the offsets of a unit are multiplied by.
    ///
    /// # Safety
    /// The row must have the unit.
    unsafe fn sums(&self, unit: usize) -> __m256;
}

/// A row of f32. As in [`direct`](crate::quantized::direct), a byte of each lane of codes is converted to a float where it is, and the
/// row compensates for its position. Needs AVX-512.
pub(super) struct FloatRow {
    /// For each half of a step and byte of a lane, the values, multiplied by the factor that compensates for the byte's position.
    x: Vec<Line>,
    /// For each half of a step, the initial values of the sums, which account for the shift of the codes.
    start: Vec<Line>,
    /// For each unit, the values that its offsets are multiplied by.
    sums: Vec<[f32; 8]>,
}

/// A row of codes of 8 bits. Needs AVX-512 with VNNI.
pub(super) struct IntegerRow {
    /// For each half of a step, the codes.
    x: Vec<Line>,
    /// For each half of a step, the initial values of the sums, which account for the shift of the format's codes.
    start: Vec<Line>,
    /// For each half of a step, the scales.
    scales: Vec<Line>,
    /// For each unit, the values that its offsets are multiplied by.
    sums: Vec<[f32; 8]>,
}

/// Returns the indices in the unit of the first weights of each lane.
fn places<W: Wide>(step: usize, half: usize) -> __m512i {
    let places: [i32; LANES] = std::array::from_fn(|lane| W::first(step, half, lane) as i32);
    // SAFETY: the types have the same size.
    unsafe { transmute::<[i32; LANES], __m512i>(places) }
}

/// Returns the values that the offsets of a unit are multiplied by, given the sum of each 32 values.
fn sums_in_place<W: Wide>(sum: impl Fn(usize) -> f32) -> [f32; 8] {
    let mut sums = [0.0; 8];
    if W::OFFSETS {
        for group in 0..W::STEPS * STEP / BLOCK {
            sums[W::offset(group)] = sum(group);
        }
    }
    sums
}

impl FloatRow {
    /// Lays out a row.
    ///
    /// # Safety
    /// The CPU must have AVX-512.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub unsafe fn new<W: Wide>(row: &[f32]) -> Self {
        let units = row.len().div_ceil(W::STEPS * STEP);
        let mut laid = Self {
            x: Vec::with_capacity(units * W::STEPS * 8),
            start: Vec::with_capacity(units * W::STEPS * 2),
            sums: Vec::with_capacity(units),
        };
        // A unit may lack whole blocks.
        let mut unit = [0.0; 2 * STEP];
        for x in row.chunks(W::STEPS * STEP) {
            unit[..x.len()].copy_from_slice(x);
            unit[x.len()..].fill(0.0);
            laid.sums.push(sums_in_place::<W>(|group| sum(&unit.as_chunks::<BLOCK>().0[group], |x| x)));
            for (step, half) in halves::<W>() {
                let places = places::<W>(step, half);
                let mut total = _mm512_setzero_ps();
                for k in 0..4 {
                    // SAFETY: each place is that of four weights of the unit.
                    let values = unsafe { _mm512_i32gather_ps::<4>(places, unit.as_ptr().add(k)) };
                    let factor = _mm512_set1_ps(FACTORS[if W::SIGNED { 3 } else { k }]);
                    laid.x.push(Line::of_floats(_mm512_mul_ps(values, factor)));
                    total = _mm512_add_ps(total, values);
                }
                laid.start.push(Line::of_floats(_mm512_mul_ps(total, _mm512_set1_ps(-W::SHIFT as f32))));
            }
        }
        laid
    }
}

impl Laid for FloatRow {
    type Codes = [__m512; 4];

    fn check(&self, steps: usize, units: usize) {
        let lens = [self.x.len(), self.start.len(), self.sums.len()];
        assert_eq!(lens, [8 * steps, 2 * steps, units], "a row of another length");
    }

    /// Converts each byte of the lanes: unsigned bytes where they are, signed ones as the uppermost bytes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn codes<W: Wide>(codes: __m512i) -> [__m512; 4] {
        let mask = |k: u32| _mm512_set1_epi32(0xff << (8 * k));
        let bytes = if W::SIGNED {
            let [a, b, c] =
                [_mm512_slli_epi32::<24>(codes), _mm512_slli_epi32::<16>(codes), _mm512_slli_epi32::<8>(codes)];
            [a, b, c, codes].map(|codes| _mm512_and_si512(codes, mask(3)))
        } else {
            [0, 1, 2, 3].map(|k| _mm512_and_si512(codes, mask(k)))
        };
        bytes.map(|bytes| _mm512_cvtepi32_ps(bytes))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn add<W: Wide>(&self, place: usize, codes: [__m512; 4], scales: __m512, totals: __m512) -> __m512 {
        // SAFETY: the caller guarantees that the row has the step.
        let x = |k: usize| unsafe { floats(self.x.get_unchecked(4 * place + k)) };
        let start = match W::SHIFT {
            0 => _mm512_setzero_ps(),
            // SAFETY: as above.
            _ => unsafe { floats(self.start.get_unchecked(place)) },
        };
        let sums = _mm512_fmadd_ps(codes[1], x(1), _mm512_fmadd_ps(codes[0], x(0), start));
        let sums = _mm512_fmadd_ps(codes[3], x(3), _mm512_fmadd_ps(codes[2], x(2), sums));
        _mm512_fmadd_ps(sums, scales, totals)
    }

    #[inline(always)]
    unsafe fn sums(&self, unit: usize) -> __m256 {
        // SAFETY: the caller guarantees that the row has the unit. The types have the same size.
        unsafe { transmute::<[f32; 8], __m256>(*self.sums.get_unchecked(unit)) }
    }
}

impl IntegerRow {
    /// Lays out a row of `columns` codes.
    ///
    /// # Safety
    /// The CPU must have AVX-512 with VNNI.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub unsafe fn new<W: Wide>(row: RoundedRow<'_>, columns: usize) -> Self {
        let unit = W::STEPS * STEP;
        let units = columns.div_ceil(unit);
        let halves = halves::<W>().count();
        let mut laid = Self {
            x: Vec::with_capacity(units * halves),
            start: Vec::with_capacity(units * halves),
            scales: Vec::with_capacity(units * halves),
            sums: Vec::with_capacity(units),
        };
        for i in 0..units {
            let (codes, scales) = (&row.codes[i * unit..][..unit], &row.scales[i * unit / BLOCK..][..unit / BLOCK]);
            laid.sums.push(sums_in_place::<W>(|group| row.sum(i * unit / BLOCK + group)));
            for (step, half) in self::halves::<W>() {
                let places = places::<W>(step, half);
                // SAFETY: each place is that of four codes of the unit, in one of its blocks. The caller guarantees VNNI.
                unsafe {
                    let codes = _mm512_i32gather_epi32::<1>(places, codes.as_ptr().cast());
                    let sums = add_products(_mm512_setzero_si512(), _mm512_set1_epi8(1), codes);
                    let start = _mm512_mullo_epi32(sums, _mm512_set1_epi32(-unsigned_shift::<W>()));
                    let scales = _mm512_i32gather_ps::<4>(_mm512_srli_epi32::<5>(places), scales.as_ptr());
                    laid.x.push(Line::of_integers(codes));
                    laid.start.push(Line::of_integers(start));
                    laid.scales.push(Line::of_floats(scales));
                }
            }
        }
        laid
    }
}

impl Laid for IntegerRow {
    type Codes = __m512i;

    fn check(&self, steps: usize, units: usize) {
        let lens = [self.x.len(), self.start.len(), self.scales.len(), self.sums.len()];
        assert_eq!(lens, [2 * steps, 2 * steps, 2 * steps, units], "a row of another length");
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn codes<W: Wide>(codes: __m512i) -> __m512i {
        unsigned::<W>(codes)
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn add<W: Wide>(&self, place: usize, codes: __m512i, scales: __m512, totals: __m512) -> __m512 {
        // SAFETY: the caller guarantees VNNI, and that the row has the step.
        unsafe {
            let start = match unsigned_shift::<W>() {
                0 => _mm512_setzero_si512(),
                _ => integers(self.start.get_unchecked(place)),
            };
            let sums = add_products(start, codes, integers(self.x.get_unchecked(place)));
            let scales = _mm512_mul_ps(scales, floats(self.scales.get_unchecked(place)));
            _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scales, totals)
        }
    }

    #[inline(always)]
    unsafe fn sums(&self, unit: usize) -> __m256 {
        // SAFETY: the caller guarantees that the row has the unit. The types have the same size.
        unsafe { transmute::<[f32; 8], __m256>(*self.sums.get_unchecked(unit)) }
    }
}

/// Returns each step and half of a unit.
fn halves<W: Wide>() -> impl Iterator<Item = (usize, usize)> {
    (0..2 * W::STEPS).map(|i| (i / 2, i % 2))
}

/// Returns a format's codes as unsigned bytes; see [`unsigned_shift`].
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn unsigned<W: Wide>(codes: __m512i) -> __m512i {
    if W::SIGNED { _mm512_xor_si512(codes, _mm512_set1_epi8(i8::MIN)) } else { codes }
}

/// Returns a format's codes as signed bytes, from which nothing is to be subtracted.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn signed<W: Wide>(codes: __m512i) -> __m512i {
    _mm512_sub_epi8(codes, _mm512_set1_epi8(W::SHIFT as i8))
}

/// Number that is subtracted from [`unsigned`] codes.
#[inline(always)]
pub(super) const fn unsigned_shift<W: Wide>() -> i32 {
    if W::SIGNED { 128 } else { W::SHIFT }
}

/// Adds to each lane the products of its four unsigned bytes of `a` and signed bytes of `b`.
///
/// # Safety
/// The CPU must have AVX-512 with VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) unsafe fn add_products(mut sums: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // No intrinsic, which would not be inlined into functions that are compiled without VNNI.
    // SAFETY: the caller guarantees VNNI.
    unsafe {
        asm!("vpdpbusd {}, {}, {}", inout(zmm_reg) sums, in(zmm_reg) a, in(zmm_reg) b, options(pure, nomem, nostack));
    }
    sums
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn floats(line: &Line) -> __m512 {
    // SAFETY: a line is an aligned register.
    unsafe { _mm512_load_ps(line.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn integers(line: &Line) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
}
