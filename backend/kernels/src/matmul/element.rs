//! How the elements of matrices are held.

/// A way to hold a number.
pub(crate) trait Element {
    /// What lies in memory.
    type Bits: Copy + Sync;

    /// What it means, exactly.
    fn number(bits: Self::Bits) -> f32;
}

/// Numbers of 32 bits, as they are.
pub(crate) struct F32;

impl Element for F32 {
    type Bits = f32;

    #[inline(always)]
    fn number(bits: f32) -> f32 {
        bits
    }
}
