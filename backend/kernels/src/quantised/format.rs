//! What the block formats have in common.

use crate::half::from_f16;

/// Lanes of a sum: one register of AVX2.
pub(super) const LANES: usize = 8;
/// A number for each lane.
pub(super) type Lanes = [f32; LANES];
/// The whole numbers that stand for 32 weights, a byte each: four to a lane.
pub(super) type Codes = [u32; LANES];

/// Weights of a strip: two [`Codes`].
pub(super) const STRIP: usize = 64;
/// Weights of a row that are worked on at once: their factors and sums stay in the first-level cache.
pub(super) const CHUNK: usize = 4096;

/// A block format, seen as the products read it: as units of one or two blocks, which are cut into strips of 64 weights,
/// which are two halves, whose lanes `0..4` and `4..8` are two parts. The bytes of the four lanes of a part stand for 16
/// weights that follow each other.
///
/// A weight is `(code - SHIFT) * scale + offset`, in that order of roundings.
pub(super) trait Format: Sized {
    /// The fewest bytes that fill strips.
    type Unit: Copy;
    /// Strips of a unit.
    const STRIPS: usize;
    /// What codes are less.
    const SHIFT: f32;
    /// Codes are numbers from -128 to 127, not from 0 to 127.
    const SIGNED: bool = false;
    /// The halves of a strip have the same scales.
    const SHARED: bool = false;
    /// The parts of a half have scales of their own.
    const SPLIT: bool = false;
    /// There are as many offsets as scales. Otherwise there are none.
    const OFFSETS: bool = false;

    /// Sums of a strip that are multiplied by different scales.
    const SUMS: usize = if Self::SHARED { 1 } else { 2 };
    /// Scales of a unit.
    const SCALES: usize = Self::STRIPS * Self::SUMS * if Self::SPLIT { 2 } else { 1 };

    /// The units of some blocks, the last of which is filled up with zeros where half of it is missing.
    fn units(blocks: &[u8]) -> Units<'_, Self>;

    /// The codes of one lane of each half of a strip.
    fn lane(unit: &Self::Unit, strip: usize, lane: usize) -> [u32; 2];

    /// Notes the scales and offsets of unit `i` of a chunk.
    fn note(unit: &Self::Unit, i: usize, factors: &mut Factors);

    /// Finishes what was noted of so many units.
    fn finish(units: usize, factors: &mut Factors);

    /// The first of a part's weights in its unit.
    fn first(at: Place) -> usize;

    /// Which of a unit's scales and offsets a part has.
    #[inline(always)]
    fn scale(Place { strip, half, part }: Place) -> usize {
        let sum = if Self::SHARED { strip } else { 2 * strip + half };
        if Self::SPLIT { 2 * sum + part } else { sum }
    }
}

/// Units, and one that had to be filled up.
pub(super) type Units<'a, F> = (&'a [<F as Format>::Unit], Option<<F as Format>::Unit>);

/// A part of a unit.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Of the unit.
    pub strip: usize,
    /// Of the strip.
    pub half: usize,
    /// Of the half.
    pub part: usize,
}

/// The parts of a strip.
#[inline(always)]
pub(super) fn parts(strip: usize) -> [Place; 4] {
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(half, part)| Place { strip, half, part })
}

/// What the weights of a chunk are multiplied by, and what is added.
pub(super) struct Factors {
    /// At most one for 16 weights.
    pub scales: [f32; CHUNK / 16],
    /// At most one for 32 weights.
    pub offsets: [f32; CHUNK / 32],
    /// What was noted as f16, an offset in the upper half, so that many are converted at once.
    pub bits: [u32; CHUNK / 32],
}

impl Factors {
    pub fn new() -> Self {
        Self { scales: [0.0; CHUNK / 16], offsets: [0.0; CHUNK / 32], bits: [0; CHUNK / 32] }
    }
}

/// Scales and offsets of which the bits are given.
#[inline(always)]
pub(super) fn convert(bits: [u32; LANES]) -> [Lanes; 2] {
    let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
    for j in 0..LANES {
        low[j] = from_f16((bits[j] & 0xffff) as u16);
        high[j] = from_f16((bits[j] >> 16) as u16);
    }
    [low, high]
}

/// Units of so many bytes.
#[inline(always)]
pub(super) fn chunks<const N: usize>(blocks: &[u8]) -> (&[[u8; N]], Option<[u8; N]>) {
    let (units, rest) = blocks.as_chunks();
    if rest.is_empty() {
        return (units, None);
    }
    let mut last = [0; N];
    last[..rest.len()].copy_from_slice(rest);
    (units, Some(last))
}

/// The bits of the f16 at a byte.
#[inline(always)]
pub(super) fn f16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..].as_chunks().0[0])
}

/// Four bytes as one number, the first the lowest.
#[inline(always)]
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    // Not byte by byte: the compiler would read only those bytes that are used, one by one.
    u32::from_le_bytes(bytes[at..].as_chunks().0[0])
}

/// The codes of a strip's halves.
#[inline(always)]
pub(super) fn codes<F: Format>(unit: &F::Unit, strip: usize) -> [Codes; 2] {
    let (mut low, mut high) = ([0; LANES], [0; LANES]);
    for i in 0..LANES {
        [low[i], high[i]] = F::lane(unit, strip, i);
    }
    [low, high]
}

/// The lower and the upper four bits of each byte.
#[inline(always)]
pub(super) fn nibbles(word: u32) -> [u32; 2] {
    [word & 0x0f0f_0f0f, (word >> 4) & 0x0f0f_0f0f]
}
