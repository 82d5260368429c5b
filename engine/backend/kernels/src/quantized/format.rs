//! Interface of the block formats.

use crate::half::from_f16;

/// Number of lanes of a sum: one AVX2 register.
pub(super) const LANES: usize = 8;
/// A value per lane.
pub(super) type Lanes = [f32; LANES];
/// Codes of 32 weights, one byte each: four per lane.
pub(super) type Codes = [u32; LANES];

/// Number of weights of a strip: two [`Codes`].
pub(super) const STRIP: usize = 64;
/// Number of weights of a row that are processed at once. Their factors and sums stay in the first-level cache.
pub(super) const CHUNK: usize = 4096;

/// A block format, as the products read it: units of one or two blocks, divided into strips of 64 weights. A strip has two
/// halves; lanes `0..4` and `4..8` of a half are its two parts. The bytes of the four lanes of a part are the codes of 16
/// consecutive weights.
///
/// A weight is `(code - SHIFT) * scale + offset`, rounded in that order.
pub(super) trait Format: Sized {
    /// The smallest group of blocks that fills whole strips.
    type Unit: Copy;
    /// Number of strips of a unit.
    const STRIPS: usize;
    /// Subtracted from the codes.
    const SHIFT: f32;
    /// If true, codes are signed bytes, from -128 to 127, instead of 0 to 127.
    const SIGNED: bool = false;
    /// If true, the halves of a strip have the same scales.
    const SHARED: bool = false;
    /// If true, the parts of a half have different scales.
    const SPLIT: bool = false;
    /// If true, there are as many offsets as scales; otherwise there are none.
    const OFFSETS: bool = false;

    /// Number of sums of a strip that are multiplied by different scales.
    const SUMS: usize = if Self::SHARED { 1 } else { 2 };
    /// Number of scales of a unit.
    const SCALES: usize = Self::STRIPS * Self::SUMS * if Self::SPLIT { 2 } else { 1 };

    /// Returns the units of some blocks. The last unit is padded with zeros if its second half is missing.
    fn units(blocks: &[u8]) -> Units<'_, Self>;

    /// Returns the codes of one lane of each half of a strip.
    fn lane(unit: &Self::Unit, strip: usize, lane: usize) -> [u32; 2];

    /// Records the scales and offsets of unit `i` of a chunk.
    fn note(unit: &Self::Unit, i: usize, factors: &mut Factors);

    /// Converts the recorded values of `units` units.
    fn finish(units: usize, factors: &mut Factors);

    /// Returns the index in the unit of a part's first weight: the halves of a strip follow each other, unless overridden.
    #[inline(always)]
    fn first(at: Place) -> usize {
        64 * at.strip + 32 * at.half + 16 * at.part
    }

    /// Returns the index in the unit of a part's scale and offset.
    #[inline(always)]
    fn scale(Place { strip, half, part }: Place) -> usize {
        let sum = if Self::SHARED { strip } else { 2 * strip + half };
        if Self::SPLIT { 2 * sum + part } else { sum }
    }
}

/// Whole units, and a padded one if necessary.
pub(super) type Units<'a, F> = (&'a [<F as Format>::Unit], Option<<F as Format>::Unit>);

/// A part of a unit.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Index of the strip in the unit.
    pub strip: usize,
    /// Index of the half in the strip.
    pub half: usize,
    /// Index of the part in the half.
    pub part: usize,
}

/// Returns the parts of a strip.
#[inline(always)]
pub(super) fn parts(strip: usize) -> [Place; 4] {
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(half, part)| Place { strip, half, part })
}

/// Scales and offsets of the weights of a chunk.
pub(super) struct Factors {
    /// Scales, at most one per 16 weights.
    pub scales: [f32; CHUNK / 16],
    /// Offsets, at most one per 32 weights.
    pub offsets: [f32; CHUNK / 32],
    /// Recorded f16 scales, with an offset in the upper half, so that many are converted at once.
    pub bits: [u32; CHUNK / 32],
}

impl Factors {
    pub fn new() -> Self {
        Self { scales: [0.0; CHUNK / 16], offsets: [0.0; CHUNK / 32], bits: [0; CHUNK / 32] }
    }
}

/// Converts the bits of scales (lower halves) and offsets (upper halves).
#[inline(always)]
pub(super) fn convert(bits: [u32; LANES]) -> [Lanes; 2] {
    let (mut low, mut high) = ([0.0; LANES], [0.0; LANES]);
    for j in 0..LANES {
        low[j] = from_f16((bits[j] & 0xffff) as u16);
        high[j] = from_f16((bits[j] >> 16) as u16);
    }
    [low, high]
}

/// Splits blocks into units of `N` bytes.
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

/// Returns the bits of the f16 at a byte offset.
#[inline(always)]
pub(super) fn f16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..].as_chunks().0[0])
}

/// Returns four bytes as a little-endian integer.
#[inline(always)]
pub(super) fn word(bytes: &[u8], at: usize) -> u32 {
    // Not byte by byte: the compiler would load only the bytes that are used, one by one.
    u32::from_le_bytes(bytes[at..].as_chunks().0[0])
}

/// Returns the codes of a strip's halves.
#[inline(always)]
pub(super) fn codes<F: Format>(unit: &F::Unit, strip: usize) -> [Codes; 2] {
    let (mut low, mut high) = ([0; LANES], [0; LANES]);
    for i in 0..LANES {
        [low[i], high[i]] = F::lane(unit, strip, i);
    }
    [low, high]
}

/// Returns the lower and the upper four bits of each byte.
#[inline(always)]
pub(super) fn nibbles(word: u32) -> [u32; 2] {
    [word & 0x0f0f_0f0f, (word >> 4) & 0x0f0f_0f0f]
}
