//! Formats with blocks of 256 weights; each block is a unit. (ggml's `block_q4_K`, `block_q5_K` and `block_q6_K`.)

use super::format::{Factors, Format, LANES, Units, chunks, convert, f16, nibbles, word};

/// d, m, 12 bytes of scales and minima of 8 groups of 32 weights, 4 times 32 bytes whose lower halves are the first 32 of 64
/// weights: `d scale code - m minimum`.
pub(super) struct Q4K;
/// Like [`Q4K`], with 32 bytes of fifth bits before the others: bit `i` of byte `j` belongs to weight `32 i + j`.
pub(super) struct Q5K;
/// 128 bytes of lower halves, 64 of fifth and sixth bits, 16 signed scales of 16 weights each, d: `d scale (code - 32)`.
pub(super) struct Q6K;

/// Returns the scales and the minima of 8 groups of 32 weights, a byte each, given the three words that have six bits of each. The
/// upper bits of the last four are in the bytes of the first four.
#[inline(always)]
pub(super) fn six_bits([a, b, c]: [u32; 3]) -> [[u32; 2]; 2] {
    [
        [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030)],
        [b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030)],
    ]
}

/// Records the scales and minima of 8 groups of 32 weights.
#[inline(always)]
fn note(unit: &[u8], i: usize, factors: &mut Factors) {
    let [scale, minimum] = six_bits([word(unit, 4), word(unit, 8), word(unit, 12)]);
    let (mut scales, mut minima) = ([0.0; LANES], [0.0; LANES]);
    for j in 0..LANES {
        let shift = 8 * (j % 4);
        scales[j] = (scale[j / 4] >> shift & 0xff) as i32 as f32;
        minima[j] = (minimum[j / 4] >> shift & 0xff) as i32 as f32;
    }
    factors.scales.as_chunks_mut().0[i] = scales;
    factors.offsets.as_chunks_mut().0[i] = minima;
    factors.bits[i] = word(unit, 0);
}

/// Multiplies the recorded values by d and -m.
#[inline(always)]
fn finish(units: usize, Factors { scales, offsets, bits }: &mut Factors) {
    let (scales, offsets) = (scales.as_chunks_mut::<LANES>().0, offsets.as_chunks_mut::<LANES>().0);
    for i in 0..units.div_ceil(LANES) {
        let [d, m] = convert(bits.as_chunks().0[i]);
        let part = i * LANES..units.min((i + 1) * LANES);
        let both = scales[part.clone()].iter_mut().zip(&mut offsets[part]);
        for ((scales, offsets), (d, m)) in both.zip(d.into_iter().zip(m)) {
            for j in 0..LANES {
                scales[j] *= d;
                offsets[j] *= -m;
            }
        }
    }
}

/// Implements a format, given the size of its block in bytes and its codes.
macro_rules! with_minima {
    ($name:ident, $bytes:literal, |$unit:ident, $strip:ident, $lane:ident| $codes:expr) => {
        impl Format for $name {
            type Unit = [u8; $bytes];
            const STRIPS: usize = 4;
            const SHIFT: f32 = 0.0;
            const OFFSETS: bool = true;

            #[inline(always)]
            fn units(blocks: &[u8]) -> Units<'_, Self> {
                chunks(blocks)
            }
            #[inline(always)]
            fn lane($unit: &Self::Unit, $strip: usize, $lane: usize) -> [u32; 2] {
                $codes
            }
            #[inline(always)]
            fn note(unit: &Self::Unit, i: usize, factors: &mut Factors) {
                note(unit, i, factors);
            }
            #[inline(always)]
            fn finish(units: usize, factors: &mut Factors) {
                finish(units, factors);
            }
        }
    };
}

with_minima!(Q4K, 144, |unit, strip, lane| nibbles(word(unit, 16 + 32 * strip + 4 * lane)));
with_minima!(Q5K, 176, |unit, strip, lane| {
    let [low, high] = nibbles(word(unit, 48 + 32 * strip + 4 * lane));
    let bits = word(unit, 16 + 4 * lane) >> (2 * strip);
    [low | (bits << 4) & 0x1010_1010, high | (bits << 3) & 0x1010_1010]
});

impl Format for Q6K {
    type Unit = [u8; 210];
    const STRIPS: usize = 4;
    const SHIFT: f32 = 32.0;
    const SPLIT: bool = true;

    #[inline(always)]
    fn units(blocks: &[u8]) -> Units<'_, Self> {
        chunks(blocks)
    }
    #[inline(always)]
    fn lane(unit: &Self::Unit, strip: usize, lane: usize) -> [u32; 2] {
        // For each 128 weights, the first strip has the lower halves of 64 bytes, and the second strip the upper halves.
        let (part, upper) = (strip / 2, strip % 2);
        let bits = word(unit, 128 + 32 * part + 4 * lane) >> (4 * upper);
        let [low, high] = [0, 32].map(|at| word(unit, 64 * part + at + 4 * lane) >> (4 * upper) & 0x0f0f_0f0f);
        [low | (bits << 4) & 0x3030_3030, high | (bits << 2) & 0x3030_3030]
    }
    #[inline(always)]
    fn note(unit: &Self::Unit, i: usize, factors: &mut Factors) {
        // All are read before any is stored, because the compiler must assume that scales and bytes may alias.
        let (bytes, mut scales) = (unit[192..].as_chunks::<16>().0[0], [0.0; 16]);
        for j in 0..16 {
            scales[j] = f32::from(bytes[j] as i8);
        }
        factors.scales.as_chunks_mut().0[i] = scales;
        factors.bits[i] = u32::from(f16(unit, 208));
    }
    #[inline(always)]
    fn finish(units: usize, Factors { scales, bits, .. }: &mut Factors) {
        for (scales, bits) in scales.as_chunks_mut::<16>().0[..units].chunks_mut(LANES).zip(bits.as_chunks().0) {
            let [d, _] = convert(*bits);
            for (scales, d) in scales.iter_mut().zip(d) {
                for scale in scales {
                    *scale *= d;
                }
            }
        }
    }
}
