//! Block types of llama.cpp's quantized tensors.

use std::fmt;

#[cfg(feature = "gguf")]
use candle_core::quantized::GgmlDType;

/// Quantization type of a tensor: blocks of 32, 64, 128 or 256 consecutive values of a row, with common scales.
///
/// The names are llama.cpp's. Types for which [`is_decodable`](Self::is_decodable) returns true are read as floats; all
/// types can be read without decoding, into a leaf of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(non_camel_case_types)] // their names in llama.cpp
pub enum BlockType {
    /// 4 bits, a scale for 32 values.
    Q4_0,
    /// 4 bits, a scale and a minimum for 32 values.
    Q4_1,
    /// 5 bits, a scale for 32 values.
    Q5_0,
    /// 5 bits, a scale and a minimum for 32 values.
    Q5_1,
    /// 8 bits, a scale for 32 values.
    Q8_0,
    /// 8 bits, a scale and a sum for 32 values. An intermediate type of llama.cpp's products, never saved.
    Q8_1,
    /// 2 bits, quantized scales and minima for 16 values each.
    Q2_K,
    /// 3 bits, quantized scales for 16 values each.
    Q3_K,
    /// 4 bits, quantized scales and minima for 32 values each.
    Q4_K,
    /// 5 bits, quantized scales and minima for 32 values each.
    Q5_K,
    /// 6 bits, quantized scales for 16 values each.
    Q6_K,
    /// 8 bits, a scale for 256 values, and sums. An intermediate type of llama.cpp's products, never saved.
    Q8_K,
    /// About 2 bits, with a codebook.
    IQ2_XXS,
    /// About 2.3 bits, with a codebook.
    IQ2_XS,
    /// About 3 bits, with a codebook.
    IQ3_XXS,
    /// About 1.6 bits, with a codebook.
    IQ1_S,
    /// 4 bits for unevenly spaced values, a scale for 32 of them.
    IQ4_NL,
    /// About 3.4 bits, with a codebook.
    IQ3_S,
    /// About 2.6 bits, with a codebook.
    IQ2_S,
    /// 4 bits for unevenly spaced values, quantized scales for 32 of them each.
    IQ4_XS,
    /// About 1.8 bits, with a codebook.
    IQ1_M,
    /// −1, 0 or 1: five in a byte.
    TQ1_0,
    /// −1, 0 or 1: four in a byte.
    TQ2_0,
    /// Floats of 4 bits, an exponent for 32 of them (the Open Compute Project's microscaling format).
    MXFP4,
    /// Floats of 4 bits, a float of 8 bits for 16 of them.
    NVFP4,
    /// −1 or 1, a scale for 128 values.
    Q1_0,
}

/// Type, number in the format, name, values per block, bytes per block: constants of `ggml.h` and `ggml-common.h`, in the
/// order of the enum.
const FACTS: [(BlockType, u32, &str, usize, usize); 26] = [
    (BlockType::Q4_0, 2, "Q4_0", 32, 18),
    (BlockType::Q4_1, 3, "Q4_1", 32, 20),
    (BlockType::Q5_0, 6, "Q5_0", 32, 22),
    (BlockType::Q5_1, 7, "Q5_1", 32, 24),
    (BlockType::Q8_0, 8, "Q8_0", 32, 34),
    (BlockType::Q8_1, 9, "Q8_1", 32, 36),
    (BlockType::Q2_K, 10, "Q2_K", 256, 84),
    (BlockType::Q3_K, 11, "Q3_K", 256, 110),
    (BlockType::Q4_K, 12, "Q4_K", 256, 144),
    (BlockType::Q5_K, 13, "Q5_K", 256, 176),
    (BlockType::Q6_K, 14, "Q6_K", 256, 210),
    (BlockType::Q8_K, 15, "Q8_K", 256, 292),
    (BlockType::IQ2_XXS, 16, "IQ2_XXS", 256, 66),
    (BlockType::IQ2_XS, 17, "IQ2_XS", 256, 74),
    (BlockType::IQ3_XXS, 18, "IQ3_XXS", 256, 98),
    (BlockType::IQ1_S, 19, "IQ1_S", 256, 50),
    (BlockType::IQ4_NL, 20, "IQ4_NL", 32, 18),
    (BlockType::IQ3_S, 21, "IQ3_S", 256, 110),
    (BlockType::IQ2_S, 22, "IQ2_S", 256, 82),
    (BlockType::IQ4_XS, 23, "IQ4_XS", 256, 136),
    (BlockType::IQ1_M, 29, "IQ1_M", 256, 56),
    (BlockType::TQ1_0, 34, "TQ1_0", 256, 54),
    (BlockType::TQ2_0, 35, "TQ2_0", 256, 66),
    (BlockType::MXFP4, 39, "MXFP4", 32, 17),
    (BlockType::NVFP4, 40, "NVFP4", 64, 36),
    (BlockType::Q1_0, 41, "Q1_0", 128, 18),
];

impl BlockType {
    /// All types, ordered by their numbers in the format.
    pub const ALL: [Self; 26] = {
        let mut all = [Self::Q4_0; 26];
        let mut i = 0;
        while i < all.len() {
            all[i] = FACTS[i].0;
            i += 1;
        }
        all
    };

    /// Returns the type with this number in the format; `None` if unknown.
    pub(super) fn of_number(number: u32) -> Option<Self> {
        FACTS.iter().find(|facts| facts.1 == number).map(|facts| facts.0)
    }

    /// Returns llama.cpp's name, such as `Q4_K`.
    pub const fn name(self) -> &'static str {
        FACTS[self as usize].2
    }

    /// Returns the number of values in a block.
    pub const fn values_per_block(self) -> usize {
        FACTS[self as usize].3
    }

    /// Returns the number of bytes in a block.
    pub const fn bytes_per_block(self) -> usize {
        FACTS[self as usize].4
    }

    /// Returns the size in bytes of a row of `values` values; `None` if the row is not a whole number of blocks.
    pub fn row_bytes(self, values: usize) -> Option<usize> {
        let blocks = values.is_multiple_of(self.values_per_block()).then(|| values / self.values_per_block())?;
        blocks.checked_mul(self.bytes_per_block())
    }

    /// Returns the number of values in a row of `bytes` bytes; `None` if the row is not a whole number of blocks.
    pub fn row_values(self, bytes: usize) -> Option<usize> {
        let blocks = bytes.is_multiple_of(self.bytes_per_block()).then(|| bytes / self.bytes_per_block())?;
        blocks.checked_mul(self.values_per_block())
    }

    /// Returns true if tensors of this type can be read as floats. Without the feature `gguf`, no type can.
    pub fn is_decodable(self) -> bool {
        #[cfg(feature = "gguf")]
        return self.candle().is_some();
        #[cfg(not(feature = "gguf"))]
        return false;
    }

    /// Returns candle-core's type, if candle-core can decode it. (candle-core lists `Q8_1` but panics on it.)
    #[cfg(feature = "gguf")]
    pub(super) fn candle(self) -> Option<GgmlDType> {
        Some(match self {
            Self::Q4_0 => GgmlDType::Q4_0,
            Self::Q4_1 => GgmlDType::Q4_1,
            Self::Q5_0 => GgmlDType::Q5_0,
            Self::Q5_1 => GgmlDType::Q5_1,
            Self::Q8_0 => GgmlDType::Q8_0,
            Self::Q2_K => GgmlDType::Q2K,
            Self::Q3_K => GgmlDType::Q3K,
            Self::Q4_K => GgmlDType::Q4K,
            Self::Q5_K => GgmlDType::Q5K,
            Self::Q6_K => GgmlDType::Q6K,
            Self::Q8_K => GgmlDType::Q8K,
            _ => return None,
        })
    }
}

impl fmt::Display for BlockType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockType, FACTS};

    #[cfg(feature = "gguf")]
    #[test]
    fn candle_has_the_same_sizes() {
        for kind in BlockType::ALL {
            if let Some(candle) = kind.candle() {
                let sizes = (kind.values_per_block(), kind.bytes_per_block());
                assert_eq!((candle.block_size(), candle.type_size()), sizes, "{kind}");
            }
        }
    }

    #[test]
    fn facts_are_in_the_order_of_the_enum() {
        for (place, (kind, number, name, ..)) in FACTS.into_iter().enumerate() {
            assert_eq!((kind as usize, format!("{kind:?}")), (place, name.to_owned()));
            assert_eq!(BlockType::of_number(number), Some(kind));
        }
        assert!(FACTS.is_sorted_by_key(|facts| facts.1));
    }

    #[test]
    fn rows_are_whole_blocks() {
        assert_eq!(BlockType::Q6_K.row_bytes(512), Some(420));
        assert_eq!(BlockType::Q6_K.row_values(420), Some(512));
        assert_eq!((BlockType::Q6_K.row_bytes(128), BlockType::Q6_K.row_values(128)), (None, None));
        assert_eq!(BlockType::MXFP4.row_values(usize::MAX / 17 * 17), None);
    }
}
