use grove_backend::Backend;

use super::Reading;
use crate::{bert::SentenceEncoder, error::Result};

/// Vectors of texts.
///
/// # Errors
/// A text is empty, or the tokenizer is not the model's.
pub fn embed<B: Backend>(
    encoder: &SentenceEncoder<B>,
    reading: Reading<'_>,
    texts: &[impl AsRef<str>],
) -> Result<Vec<Vec<f32>>> {
    let texts = reading.encode_all(texts, |reading, text| reading.encode(text.as_ref(), None))?;
    reading.in_batches(&texts, |texts| {
        let vectors = encoder.forward(&encoder.bert.batch(texts)?);
        let size = vectors.dims()[1];
        let all: Vec<f32> = vectors.into_data().iter().collect();
        Ok(all.chunks(size).map(<[f32]>::to_vec).collect())
    })
}
