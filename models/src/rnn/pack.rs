use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::{
    Embedding,
    rnn::{PackedSequence, Packing},
};
use grove_tree::Array;

use crate::error::{ModelError, Result};

/// Packs texts of different lengths, in any order, for recurrent layers. Packed batches have no padding.
///
/// # Errors
/// There are no texts, a text is empty, or a token is outside the vocabulary.
pub fn pack_tokens<B: Backend>(
    texts: &[Vec<u32>],
    vocab_size: usize,
    device: &B::Device,
) -> Result<PackedSequence<Array<B, 1, Int>>> {
    let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
    let packing = Packing::new(&lengths, false)?;
    if let Some(&id) = texts.iter().flatten().find(|&&id| id as usize >= vocab_size) {
        return Err(ModelError::TokenOutside { id, vocab_size });
    }
    let ids: Vec<i64> = packing.positions().map(|(i, step)| i64::from(texts[i][step])).collect();
    let rows = ids.len();
    let ids = Tensor::from_data(TensorData::new(ids, [rows]), device);
    Ok(PackedSequence { data: Array::new(ids), packing })
}

/// Embeds packed tokens: `[rows]` to `[rows, size]`.
pub(super) fn embed<B: Backend>(embedding: &Embedding<B>, ids: Tensor<B, 1, Int>) -> Tensor<B, 2> {
    embedding.forward(ids.unsqueeze()).squeeze_dim(0)
}
