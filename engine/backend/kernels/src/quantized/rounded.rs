//! Left-hand rows that are rounded to codes of 8 bits, and their products on CPUs without AVX512-VNNI.

use super::{
    QuantizedMatrix, add_bias,
    direct::TASK,
    for_kind::for_kind,
    format::{CHUNK, Factors, Format, LANES, Lanes, STRIP, codes, parts},
};
use crate::{
    dispatch::vectorized,
    math::fma,
    matmul::{Matrix, for_bands},
};

/// Number of values that share a scale.
pub(super) const BLOCK: usize = 32;
/// Rows are padded with zeros to a multiple of this length.
const PADDED: usize = 256;
/// Zeros follow as rows up to a multiple of this number of rows, the height of a tile.
const HEIGHT: usize = 16;
/// Largest code.
const LARGEST: f32 = 127.0;
/// Values that are not larger are rounded as if the largest of their block were this one, so that the inverse of a scale is finite.
const LEAST: f32 = 1e-30;
/// Addition of this number rounds a small number to an integer, to even if two are as near, and leaves the integer in the lower
/// bits.
const ROUNDING: f32 = 12_582_912.0;

/// Rows of numbers in blocks of 32 that share a scale: `number = code * scale`. If a number of a block is infinite or NaN, the
/// scale is NaN.
pub(super) struct RoundedRows {
    /// Number of rows.
    pub count: usize,
    /// Length of a row with its padding.
    padded: usize,
    /// Codes from -127 to 127.
    codes: Vec<i8>,
    /// The scale of each block.
    scales: Vec<f32>,
    /// For each 16 codes, their sum.
    sums: Vec<i32>,
}

/// A row of [`RoundedRows`], padded with zeros.
#[derive(Clone, Copy)]
pub(super) struct RoundedRow<'a> {
    pub codes: &'a [i8],
    /// The scale of each block.
    pub scales: &'a [f32],
    /// For each 16 codes, their sum.
    pub sums: &'a [i32],
}

impl RoundedRows {
    /// Rounds the rows of a matrix.
    pub fn new(a: Matrix<'_>) -> Self {
        let padded = a.columns.next_multiple_of(PADDED);
        let all = a.rows.next_multiple_of(HEIGHT) * padded;
        let mut rounded = Self {
            count: a.rows,
            padded,
            codes: vec![0; all],
            scales: vec![0.0; all / BLOCK],
            sums: vec![0; all / 16],
        };
        for i in 0..a.rows {
            let row = &a.data[i * a.stride..][..a.columns];
            let (codes, scales) = (&mut rounded.codes[i * padded..], &mut rounded.scales[i * padded / BLOCK..]);
            round(row, codes, scales, &mut rounded.sums[i * padded / 16..]);
        }
        rounded
    }

    /// Returns the codes of all rows and the length of a row, with the padding.
    #[cfg(target_arch = "x86_64")]
    pub fn padded_codes(&self) -> (&[i8], usize) {
        (&self.codes, self.padded)
    }

    /// Returns a row.
    pub fn row(&self, i: usize) -> RoundedRow<'_> {
        let part = |each: usize| i * self.padded / each..(i + 1) * self.padded / each;
        RoundedRow { codes: &self.codes[part(1)], scales: &self.scales[part(BLOCK)], sums: &self.sums[part(16)] }
    }
}

impl RoundedRow<'_> {
    /// Returns the sum of the values of a block.
    #[inline(always)]
    pub fn sum(&self, block: usize) -> f32 {
        (self.sums[2 * block] + self.sums[2 * block + 1]) as f32 * self.scales[block]
    }
}

vectorized! {
    /// Rounds whole blocks.
    fn round<_FUSED>(row: &[f32], codes: &mut [i8], scales: &mut [f32], sums: &mut [i32]) {
        let blocks = row.as_chunks::<BLOCK>().0.iter().zip(codes.as_chunks_mut::<BLOCK>().0);
        for ((block, codes), (scale, sums)) in blocks.zip(scales.iter_mut().zip(sums.as_chunks_mut::<2>().0)) {
            let (mut largest, mut is_finite) = (LEAST, true);
            for x in block {
                largest = if x.abs() > largest { x.abs() } else { largest };
                is_finite &= x.is_finite();
            }
            if !is_finite {
                *scale = f32::NAN;
                continue;
            }
            *scale = largest / LARGEST;
            let inverse = scale.recip();
            let mut integers = [0; BLOCK];
            for (integer, x) in integers.iter_mut().zip(block) {
                *integer = i32::from((x * inverse + ROUNDING).to_bits() as i8);
            }
            for (code, integer) in codes.iter_mut().zip(&integers) {
                *code = *integer as i8;
            }
            let (low, high) = integers.split_at(16);
            *sums = [low.iter().sum(), high.iter().sum()];
        }
    }
}

/// Computes `c = a b^T + bias`.
pub(super) fn product(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    assert!(c.len() == a.count * b.rows, "{} results for {} rows", c.len(), a.count);
    for_bands(c, b.rows, (TASK / b.columns).max(1), |first, c| {
        dots(b, first, a, c);
        add_bias(c, bias, first);
    });
}

vectorized! {
    /// Computes the dot products of each row with the rows of `b` from `first` on.
    fn dots<FUSED>(b: QuantizedMatrix<'_>, first: usize, a: &RoundedRows, c: &mut [&mut [f32]]) {
        for_kind!(b.kind, dots_for[FUSED](b, first, a, c));
    }
}

#[inline(always)]
fn dots_for<F: Format, const FUSED: bool>(b: QuantizedMatrix<'_>, first: usize, a: &RoundedRows, c: &mut [&mut [f32]]) {
    let mut chunk = Chunk::new();
    for j in 0..c[0].len() {
        c.iter_mut().for_each(|c| c[j] = 0.0);
        for from in (0..b.columns).step_by(CHUNK) {
            let len = CHUNK.min(b.columns - from);
            chunk.unpack::<F>(b.part(first + j, from, len));
            for (i, c) in c.iter_mut().enumerate() {
                c[j] += chunk.dot::<F, FUSED>(a.row(i), from, len);
            }
        }
    }
}

/// A part of a row of blocks, unpacked.
struct Chunk {
    /// Codes, minus the format's shift.
    codes: [[i8; 16]; CHUNK / 16],
    /// For each 16 weights, the scale.
    scales: [f32; CHUNK / 16],
    /// For each 32 weights, the offset.
    offsets: [f32; CHUNK / BLOCK],
    factors: Factors,
}

impl Chunk {
    fn new() -> Self {
        Self {
            codes: [[0; 16]; CHUNK / 16],
            scales: [0.0; CHUNK / 16],
            offsets: [0.0; CHUNK / BLOCK],
            factors: Factors::new(),
        }
    }

    #[inline(always)]
    fn unpack<F: Format>(&mut self, blocks: &[u8]) {
        let (units, last) = F::units(blocks);
        let all = || units.iter().chain(&last).enumerate();
        for (i, unit) in all() {
            F::note(unit, i, &mut self.factors);
        }
        F::finish(all().count(), &mut self.factors);
        for (i, unit) in all() {
            for strip in 0..F::STRIPS {
                let codes = codes::<F>(unit, strip);
                for at in parts(strip) {
                    let part = i * F::STRIPS * STRIP / 16 + F::first(at) / 16;
                    for lane in 0..4 {
                        let bytes = codes[at.half][4 * at.part + lane].to_le_bytes();
                        let shifted = bytes.map(|code| (code as i8).wrapping_sub(F::SHIFT as i8));
                        self.codes[part].as_chunks_mut().0[lane] = shifted;
                    }
                    let factor = i * F::SCALES + F::scale(at);
                    self.scales[part] = self.factors.scales[factor];
                    if F::OFFSETS {
                        self.offsets[part / 2] = self.factors.offsets[factor];
                    }
                }
            }
        }
    }

    /// Returns the dot product with `len` values of a row, from `from` on.
    #[inline(always)]
    fn dot<F: Format, const FUSED: bool>(&self, row: RoundedRow<'_>, from: usize, len: usize) -> f32 {
        let (codes, scales) = (&row.codes.as_chunks::<16>().0[from / 16..], &row.scales[from / BLOCK..]);
        let mut totals: Lanes = [0.0; LANES];
        for (i, (weights, codes)) in self.codes[..len / 16].iter().zip(codes).enumerate() {
            let scale = self.scales[i] * scales[i / 2];
            for (lane, total) in totals.iter_mut().enumerate() {
                let product = |k: usize| i32::from(weights[k]) * i32::from(codes[k]);
                let sum = product(2 * lane) + product(2 * lane + 1);
                *total = fma::<FUSED>(sum as f32, scale, *total);
            }
        }
        let mut total = totals.iter().sum();
        if F::OFFSETS {
            for (i, offset) in self.offsets[..len / BLOCK].iter().enumerate() {
                total = fma::<FUSED>(*offset, row.sum(from / BLOCK + i), total);
            }
        }
        total
    }
}
