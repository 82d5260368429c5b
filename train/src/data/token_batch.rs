//! Batches of token sequences of equal length.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;

/// Batch of token sequences of equal length, on the host.
///
/// In language modelling each row has one token more than the context. The inputs are all tokens of a row but the last;
/// the targets are all but the first.
///
/// ```
/// use burn_flex::Flex;
/// use grove_train::data::TokenBatch;
///
/// let batch = TokenBatch { tokens: vec![1, 2, 3, 4, 5, 6], rows: 2, columns: 3 };
/// let device = Default::default();
/// assert_eq!(batch.inputs::<Flex>(&device).to_data().iter::<u32>().collect::<Vec<_>>(), [1, 2, 4, 5]);
/// assert_eq!(batch.targets::<Flex>(&device).to_data().iter::<u32>().collect::<Vec<_>>(), [2, 3, 5, 6]);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenBatch {
    /// Tokens in row-major order.
    pub tokens: Vec<u32>,
    /// Number of rows.
    pub rows: usize,
    /// Number of tokens in a row.
    pub columns: usize,
}

impl TokenBatch {
    /// Returns all tokens on a device.
    ///
    /// # Shapes
    /// - output: `[rows, columns]`
    pub fn tokens<B: Backend>(&self, device: &B::Device) -> Tensor<B, 2, Int> {
        Tensor::from_data(TensorData::new(self.tokens.clone(), [self.rows, self.columns]), device)
    }

    /// Returns all but the last token of each row.
    ///
    /// # Shapes
    /// - output: `[rows, columns - 1]`
    pub fn inputs<B: Backend>(&self, device: &B::Device) -> Tensor<B, 2, Int> {
        self.without_one(|row| row.split_last().map_or(row, |(_, rest)| rest), device)
    }

    /// Returns all but the first token of each row: the token after each of [`inputs`](TokenBatch::inputs).
    ///
    /// # Shapes
    /// - output: `[rows, columns - 1]`
    pub fn targets<B: Backend>(&self, device: &B::Device) -> Tensor<B, 2, Int> {
        self.without_one(|row| row.split_first().map_or(row, |(_, rest)| rest), device)
    }

    // On the host this copies a few kilobytes; slicing on the device would be an operation.
    fn without_one<B: Backend>(&self, cut: impl Fn(&[u32]) -> &[u32], device: &B::Device) -> Tensor<B, 2, Int> {
        let tokens: Vec<u32> = self.tokens.chunks_exact(self.columns.max(1)).flat_map(cut).copied().collect();
        Tensor::from_data(TensorData::new(tokens, [self.rows, self.columns.saturating_sub(1)]), device)
    }
}
