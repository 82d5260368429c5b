//! Formats with blocks of 32 weights; two blocks are a unit and a strip. (ggml's `block_q4_0` to `block_q8_0`.)

use std::hint::black_box;

use super::format::{Factors, Format, LANES, Place, Units, chunks, convert, nibbles, word};

/// d, 16 bytes whose lower halves are the first 16 weights: `d (code - 8)`.
pub(super) struct Q4_0;
/// d and m, then like [`Q4_0`]: `d code + m`.
pub(super) struct Q4_1;
/// d, 32 fifth bits, then like [`Q4_0`]: `d (code - 16)`.
pub(super) struct Q5_0;
/// d, m, 32 fifth bits, then like [`Q4_0`]: `d code + m`.
pub(super) struct Q5_1;
/// d, 32 signed bytes: `d code`.
pub(super) struct Q8_0;

/// Returns the index of a lane's codes in a unit of two blocks of `bytes` bytes, the last 16 of which are codes.
#[inline(always)]
fn place(bytes: usize, lane: usize) -> usize {
    bytes * (lane / 4) + bytes - 16 + 4 * (lane % 4)
}

/// Returns the codes of a lane: four bits of `word` each, with their fifth bits.
#[inline(always)]
fn five(word: u32, bits: u32, lane: usize) -> [u32; 2] {
    /// Multiplication by this constant spreads copies of four bits so far apart that bit `k` of one copy becomes the fifth
    /// bit of byte `k`.
    const SPREAD: u32 = 1 << 4 | 1 << 11 | 1 << 18 | 1 << 25;
    let (bits, [low, high]) = (bits >> (4 * (lane % 4)), nibbles(word));
    [low | ((bits & 15) * SPREAD) & 0x1010_1010, high | (((bits >> 16) & 15) * SPREAD) & 0x1010_1010]
}

/// Converts the recorded values of `blocks` blocks, rounded up to whole registers.
#[inline(always)]
fn finish<const OFFSETS: bool>(blocks: usize, Factors { scales, offsets, bits }: &mut Factors) {
    for i in 0..blocks.div_ceil(LANES) {
        // Hidden from the compiler, which would otherwise combine the same lane of eight iterations in one register.
        let i = black_box(i);
        let [low, high] = convert(bits.as_chunks().0[i]);
        scales.as_chunks_mut().0[i] = low;
        if OFFSETS {
            offsets.as_chunks_mut().0[i] = high;
        }
    }
}

/// Implements a format, given the size of its block in bytes, its shift, a flag for offsets, and its codes. The parts of a
/// half belong to different blocks.
macro_rules! halves {
    ($name:ident, $bytes:literal, $shift:literal, $offsets:literal, |$unit:ident, $lane:ident| $codes:expr) => {
        impl Format for $name {
            type Unit = [u8; 2 * $bytes];
            const STRIPS: usize = 1;
            const SHIFT: f32 = $shift;
            const SHARED: bool = true;
            const SPLIT: bool = true;
            const OFFSETS: bool = $offsets;

            #[inline(always)]
            fn units(blocks: &[u8]) -> Units<'_, Self> {
                chunks(blocks)
            }
            #[inline(always)]
            fn lane($unit: &Self::Unit, _: usize, $lane: usize) -> [u32; 2] {
                $codes
            }
            #[inline(always)]
            fn note(unit: &Self::Unit, i: usize, factors: &mut Factors) {
                // A word is a scale and an offset. Without offsets, its upper half is ignored.
                factors.bits.as_chunks_mut().0[i] = [word(unit, 0), word(unit, $bytes)];
            }
            #[inline(always)]
            fn finish(units: usize, factors: &mut Factors) {
                finish::<$offsets>(2 * units, factors);
            }
            #[inline(always)]
            fn first(at: Place) -> usize {
                32 * at.part + 16 * at.half
            }
        }
    };
}

halves!(Q4_0, 18, 8.0, false, |unit, lane| nibbles(word(unit, place(18, lane))));
halves!(Q4_1, 20, 0.0, true, |unit, lane| nibbles(word(unit, place(20, lane))));
halves!(Q5_0, 22, 16.0, false, |unit, lane| {
    five(word(unit, place(22, lane)), word(unit, 22 * (lane / 4) + 2), lane)
});
halves!(Q5_1, 24, 0.0, true, |unit, lane| five(word(unit, place(24, lane)), word(unit, 24 * (lane / 4) + 4), lane));

/// The halves are different blocks.
impl Format for Q8_0 {
    type Unit = [u8; 68];
    const STRIPS: usize = 1;
    const SHIFT: f32 = 0.0;
    const SIGNED: bool = true;

    #[inline(always)]
    fn units(blocks: &[u8]) -> Units<'_, Self> {
        chunks(blocks)
    }
    #[inline(always)]
    fn lane(unit: &Self::Unit, _: usize, lane: usize) -> [u32; 2] {
        [word(unit, 2 + 4 * lane), word(unit, 36 + 4 * lane)]
    }
    #[inline(always)]
    fn note(unit: &Self::Unit, i: usize, factors: &mut Factors) {
        factors.bits.as_chunks_mut().0[i] = [word(unit, 0), word(unit, 34)];
    }
    #[inline(always)]
    fn finish(units: usize, factors: &mut Factors) {
        finish::<false>(2 * units, factors);
    }
}
