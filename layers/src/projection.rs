//! Linear layers and embedding tables with weights that may be quantized, for large models.

use burn::tensor::{DType, Int, Tensor};
use grove_backend::{Backend, InputPrecision, Quantization, ops};
use grove_tree::{Array, Tree};

use crate::{Embedding, Linear};

/// A quantized weight matrix in blocks of a GGML format. The row length is a multiple of the block length.
#[derive(Tree, Clone, Debug)]
pub struct Quantized<B: Backend> {
    /// Blocks, u8, `[out, bytes per row]`.
    pub blocks: Array<B, 2, Int>,
    /// Bias, added to the product, `[out]`; `None` for no bias.
    pub bias: Option<Array<B, 1>>,
    /// GGML format of the blocks.
    #[tree(static)]
    pub kind: Quantization,
    /// Precision in which the layer reads its inputs.
    #[tree(static)]
    pub precision: InputPrecision,
}

impl<B: Backend> Quantized<B> {
    /// Creates a matrix without values, of `rows` rows (outputs of the layer) and `columns` columns (inputs).
    pub fn absent(rows: usize, columns: usize, kind: Quantization) -> Self {
        let bytes = columns / kind.block_len() * kind.block_bytes();
        let blocks = Array::absent_of([rows, bytes], DType::U8);
        Self { blocks, bias: None, kind, precision: InputPrecision::F32 }
    }

    /// Number of values of the matrix.
    pub fn len(&self) -> usize {
        let [rows, bytes] = self.blocks.shape();
        rows * (bytes / self.kind.block_bytes() * self.kind.block_len())
    }

    /// Returns true if the matrix has no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Applies the matrix as a linear layer.
    ///
    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let y = ops::quantized_linear(x, self.blocks.val(), self.kind, self.precision);
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        }
    }

    /// Looks up rows, dequantized to f32.
    ///
    /// # Shapes
    /// - input `[b, t]`, each in `0..rows`
    /// - output `[b, t, columns]`
    #[track_caller]
    pub fn rows(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        let [b, t] = ids.dims();
        let blocks = self.blocks.val().select(0, ids.reshape([b * t]));
        let rows = ops::dequantize(blocks, self.kind);
        let columns = rows.dims()[1];
        rows.reshape([b, t, columns])
    }
}

/// Weights of a layer as its file stores them: dense or quantized. The leaves have the paths of the variant's content:
/// `weight` or `blocks`.
#[derive(Tree, Clone, Debug)]
#[tree(transparent)]
pub enum MaybeQuantized<D, Q> {
    /// Unquantized values.
    Dense(D),
    /// Blocks of quantized values.
    Quantized(Q),
}

/// A linear layer with dense or quantized weights.
pub type QuantLinear<B> = MaybeQuantized<Linear<B>, Quantized<B>>;

/// An embedding table with dense or quantized weights, which may also serve as the output layer.
pub type QuantEmbedding<B> = MaybeQuantized<Embedding<B>, Quantized<B>>;

impl<D, B: Backend> MaybeQuantized<D, Quantized<B>> {
    /// Returns the quantized weights, if they are.
    pub fn quantized_mut(&mut self) -> Option<&mut Quantized<B>> {
        match self {
            Self::Dense(_) => None,
            Self::Quantized(weights) => Some(weights),
        }
    }
}

impl<B: Backend> QuantLinear<B> {
    /// Applies the linear layer.
    ///
    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Dense(map) => map.forward(x),
            Self::Quantized(map) => map.forward(x),
        }
    }

    /// Number of output features.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Dense(map) => map.weight.shape()[1],
            Self::Quantized(map) => map.blocks.shape()[0],
        }
    }
}

impl<B: Backend> QuantEmbedding<B> {
    /// Looks up rows. The rows of a quantized table are f32.
    ///
    /// # Shapes
    /// - input `[b, t]`, each in `0..symbols`
    /// - output `[b, t, size]`
    #[track_caller]
    pub fn rows(&self, symbols: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        match self {
            Self::Dense(table) => table.forward(symbols),
            Self::Quantized(table) => table.rows(symbols),
        }
    }

    /// Applies the table as the output layer of a language model: the product of `x` with each row.
    ///
    /// # Shapes
    /// - input `[b, t, size]`
    /// - output `[b, t, symbols]`
    #[track_caller]
    pub fn attend(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        match self {
            Self::Dense(table) => table.attend(x),
            Self::Quantized(table) => table.forward(x),
        }
    }
}
