use grove_backend::Backend;

use super::BatchOptions;
use crate::{bert::SentenceEncoder, error::Result};

/// Vectors of texts.
///
/// # Errors
/// A text is empty, the tokenizer is not the model's, or the model's results are not finite.
pub fn embed<B: Backend>(
    encoder: &SentenceEncoder<B>,
    batching: BatchOptions<'_>,
    texts: &[impl AsRef<str>],
) -> Result<Vec<Vec<f32>>> {
    let texts = batching.encode_all(texts, |batching, text| batching.encode(text.as_ref(), None))?;
    batching.in_batches(&texts, |texts| {
        let vectors = encoder.forward(&encoder.bert.batch(texts)?);
        let size = vectors.dims()[1];
        let all = BatchOptions::finite(encoder, vectors)?;
        Ok(all.chunks(size).map(<[f32]>::to_vec).collect())
    })
}
