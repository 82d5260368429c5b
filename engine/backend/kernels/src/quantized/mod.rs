//! Products with quantized matrices: codes of a few bits in blocks that share a scale, in GGML's formats.
//!
//! The arithmetic is f32. The results are those of a product with the dequantized matrix, which is never materialised as a
//! whole. Optionally, the left-hand rows are rounded to 8 bits, and codes are multiplied as integers; see [`InputPrecision`].

mod direct;
mod for_kind;
mod format;
mod large;
mod pairs;
mod panel;
mod rounded;
mod row;
mod scratch;
#[cfg(test)]
mod tests;
mod unpack;
#[cfg(target_arch = "x86_64")]
mod wide;

use crate::matmul::{Matrix, matmul_converted};
use rounded::RoundedRows;
pub use unpack::dequantize;

/// GGML's block formats. The number in the name is the number of bits per weight; `K` formats have two levels of scales.
///
/// The layouts are those of `ggml-common.h` in <https://github.com/ggml-org/ggml>.
#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Quantization {
    /// 32 weights in 18 bytes, with one scale.
    Q4_0,
    /// 32 weights in 20 bytes, with a scale and a minimum.
    Q4_1,
    /// 32 weights in 22 bytes, with one scale.
    Q5_0,
    /// 32 weights in 24 bytes, with a scale and a minimum.
    Q5_1,
    /// 32 weights in 34 bytes, with one scale.
    Q8_0,
    /// 256 weights in 144 bytes, with a scale and a minimum per 32.
    Q4K,
    /// 256 weights in 176 bytes, with a scale and a minimum per 32.
    Q5K,
    /// 256 weights in 210 bytes, with a scale per 16.
    Q6K,
}

impl Quantization {
    /// All formats.
    pub const ALL: [Self; 8] =
        [Self::Q4_0, Self::Q4_1, Self::Q5_0, Self::Q5_1, Self::Q8_0, Self::Q4K, Self::Q5K, Self::Q6K];

    /// Returns the number of weights of a block.
    pub fn block_len(self) -> usize {
        match self {
            Self::Q4_0 | Self::Q4_1 | Self::Q5_0 | Self::Q5_1 | Self::Q8_0 => 32,
            Self::Q4K | Self::Q5K | Self::Q6K => 256,
        }
    }

    /// Returns the number of bytes of a block.
    pub fn block_bytes(self) -> usize {
        match self {
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q4K => 144,
            Self::Q5K => 176,
            Self::Q6K => 210,
        }
    }

    /// Returns GGML's name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q8_0 => "Q8_0",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        }
    }

    /// Returns the format with a GGML name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the number of weights in `bytes` bytes, which must be whole blocks.
    pub fn weights(self, bytes: usize) -> usize {
        bytes / self.block_bytes() * self.block_len()
    }

    /// Returns the number of bytes of `weights` weights, which must be whole blocks.
    fn bytes(self, weights: usize) -> usize {
        weights / self.block_len() * self.block_bytes()
    }
}

impl std::fmt::Display for Quantization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Precision in which a product with a quantized matrix reads its other matrix, the inputs of a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum InputPrecision {
    /// As they are.
    #[default]
    F32,
    /// Rounded to 8 bits: blocks of 32 consecutive values share a scale, 1/127 of their largest magnitude. A value is the nearest
    /// multiple of the scale. If a value is infinite or NaN, all results of its row are NaN.
    Int8,
}

/// A quantized matrix: contiguous rows of whole blocks.
#[derive(Clone, Copy)]
pub struct QuantizedMatrix<'a> {
    /// Blocks.
    pub data: &'a [u8],
    /// Number of rows of the matrix: the outputs of a layer.
    pub rows: usize,
    /// Number of columns of the matrix, a multiple of the block length: the inputs of a layer.
    pub columns: usize,
    /// Format of the blocks.
    pub kind: Quantization,
}

impl<'a> QuantizedMatrix<'a> {
    /// Returns some weights of a row, which must be whole blocks.
    fn part(&self, row: usize, column: usize, columns: usize) -> &'a [u8] {
        let start = self.kind.bytes(row * self.columns + column);
        &self.data[start..][..self.kind.bytes(columns)]
    }
}

/// Maximum number of rows for which the blocks are multiplied without unpacking. Packing them costs about as much as this
/// number of uses.
const FEW: usize = 4;

/// Computes `c = a b^T + bias` in f32. `c` is `[a.rows, b.rows]`. The bias, if any, is added to each row.
///
/// # Panics
/// If the sizes do not match, or `a` is transposed.
pub fn matmul_quantized(
    a: Matrix<'_>,
    precision: InputPrecision,
    b: QuantizedMatrix<'_>,
    bias: Option<&[f32]>,
    c: &mut [f32],
) {
    a.check();
    let QuantizedMatrix { rows: columns, columns: depth, kind, .. } = b;
    assert!(depth.is_multiple_of(kind.block_len()), "{depth} columns are not a multiple of the block size of {kind}");
    assert!(b.data.len() == kind.bytes(columns * depth), "{} bytes for {columns} x {depth} of {kind}", b.data.len());
    assert!(!a.transposed && a.columns == depth && c.len() == a.rows * columns, "{} x {}", a.rows, a.columns);
    assert!(bias.is_none_or(|bias| bias.len() == columns));
    if c.is_empty() {
        return;
    }
    match precision {
        InputPrecision::Int8 if depth > 0 => int8_product(&RoundedRows::new(a), b, bias, c),
        _ if a.rows > FEW || depth == 0 => matmul_converted(a, &b, bias, columns, c),
        _ => direct::product(a, b, bias, c),
    }
}

/// Adds the bias, if any, to the columns from `first` on of each row.
fn add_bias(rows: &mut [&mut [f32]], bias: Option<&[f32]>, first: usize) {
    if let Some(bias) = bias {
        for c in rows {
            c.iter_mut().zip(&bias[first..]).for_each(|(c, bias)| *c += bias);
        }
    }
}

/// Computes `c = a b^T + bias` for rounded rows.
fn int8_product(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if wide::int8_product(a, b, bias, c) {
        return;
    }
    rounded::product(a, b, bias, c);
}
