//! Padding of token sequences.

use burn::tensor::{Bool, Int, Tensor, TensorData};
use grove_backend::Backend;

use super::TokenBatch;

/// Token sequences padded to the length of the longest, on the host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PaddedBatch {
    /// Sequences, padded at the end.
    pub tokens: TokenBatch,
    /// Length of each sequence without padding.
    pub lengths: Vec<usize>,
}

/// Pads sequences at the end to the length of the longest.
///
/// - `rows`: token sequences.
/// - `pad`: padding token.
///
/// ```
/// use grove_train::data::pad;
///
/// let batch = pad(&[vec![1, 2, 3], vec![4]], 0);
/// assert_eq!(batch.tokens.tokens, [1, 2, 3, 4, 0, 0]);
/// assert_eq!(batch.lengths, [3, 1]);
/// ```
pub fn pad(rows: &[impl AsRef<[u32]>], pad: u32) -> PaddedBatch {
    let lengths: Vec<usize> = rows.iter().map(|row| row.as_ref().len()).collect();
    let columns = lengths.iter().copied().max().unwrap_or(0);
    let mut tokens = Vec::with_capacity(rows.len() * columns);
    for row in rows {
        let end = tokens.len() + columns;
        tokens.extend_from_slice(row.as_ref());
        tokens.resize(end, pad);
    }
    PaddedBatch { tokens: TokenBatch { tokens, rows: rows.len(), columns }, lengths }
}

impl PaddedBatch {
    /// Returns the padded tokens on a device.
    ///
    /// # Shapes
    /// - output: `[rows, columns]`
    pub fn tokens<B: Backend>(&self, device: &B::Device) -> Tensor<B, 2, Int> {
        self.tokens.tokens(device)
    }

    /// Returns the mask of the tokens that are not padding (transformers' `attention_mask`).
    ///
    /// # Shapes
    /// - output: `[rows, columns]`, true for a token
    pub fn mask<B: Backend>(&self, device: &B::Device) -> Tensor<B, 2, Bool> {
        let TokenBatch { rows, columns, .. } = self.tokens;
        let mask: Vec<bool> =
            self.lengths.iter().flat_map(|&length| (0..columns).map(move |column| column < length)).collect();
        Tensor::from_data(TensorData::new(mask, [rows, columns]), device)
    }

    /// Fraction of the tokens that are padding, from 0 to 1.
    pub fn padding(&self) -> f64 {
        let all = self.tokens.tokens.len();
        if all == 0 {
            return 0.0;
        }
        1.0 - self.lengths.iter().sum::<usize>() as f64 / all as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mask_and_padding_fraction_match_the_lengths() {
        let batch = pad(&[vec![1, 2, 3, 4], vec![], vec![5, 6]], 9);
        assert_eq!(batch.tokens.tokens, [1, 2, 3, 4, 9, 9, 9, 9, 5, 6, 9, 9]);
        let mask = batch.mask::<burn_flex::Flex>(&Default::default());
        assert_eq!(mask.dims(), [3, 4]);
        let mask: Vec<bool> = mask.into_data().iter::<bool>().collect();
        assert_eq!(mask.iter().map(|&real| u8::from(real)).collect::<Vec<_>>(), [1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0]);
        assert_eq!(batch.padding(), 0.5);
        assert_eq!((pad(&[[]; 0], 0).tokens.columns, pad(&[[]], 0).padding()), (0, 0.0));
    }
}
