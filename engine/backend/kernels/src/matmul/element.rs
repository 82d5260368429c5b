//! Storage formats of matrix elements.

/// A storage format.
pub(crate) trait Element {
    /// Type in memory.
    type Bits: Copy + Sync;

    /// Returns the exact value.
    fn number(bits: Self::Bits) -> f32;
}

/// 32-bit elements, stored as f32.
pub(crate) struct F32;

impl Element for F32 {
    type Bits = f32;

    #[inline(always)]
    fn number(bits: f32) -> f32 {
        bits
    }
}
