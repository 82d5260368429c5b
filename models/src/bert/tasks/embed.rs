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

/// Cosine of the angle between two vectors, from -1 to 1; 0 where one of them is zero.
pub fn cosine_similarity(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}

/// Vectors by their cosine similarity to a query, the most similar first: index and similarity. Equal ones keep their order.
///
/// ```
/// use grove_models::bert::tasks::rank_by_similarity;
///
/// let vectors = [vec![0.0, 1.0], vec![2.0, 0.0], vec![1.0, 1.0]];
/// let order: Vec<usize> = rank_by_similarity(&[1.0, 0.0], &vectors).into_iter().map(|(i, _)| i).collect();
/// assert_eq!(order, [1, 2, 0]);
/// ```
pub fn rank_by_similarity(query: &[f32], vectors: &[Vec<f32>]) -> Vec<(usize, f32)> {
    let mut order: Vec<(usize, f32)> =
        vectors.iter().enumerate().map(|(i, vector)| (i, cosine_similarity(query, vector))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order
}
