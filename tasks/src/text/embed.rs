use grove_backend::Backend;

use super::BatchOptions;
use grove_models::{
    ModelError, Result,
    bert::{SentenceEncoder, Similarity},
};
use grove_text::Truncation;

/// Computes the embeddings of texts, each prefixed with the encoder's default prompt.
///
/// # Errors
/// A text is empty, the tokenizer is not the model's, or the model's results are not finite.
pub fn embed<B: Backend>(
    encoder: &SentenceEncoder<B>,
    batching: BatchOptions<'_>,
    texts: &[impl AsRef<str>],
) -> Result<Vec<Vec<f32>>> {
    embed_after(encoder, batching, encoder.prompt(None)?, texts)
}

/// Computes the embeddings of texts, each prefixed with `prompt`.
///
/// # Errors
/// As [`embed`].
pub fn embed_after<B: Backend>(
    encoder: &SentenceEncoder<B>,
    batching: BatchOptions<'_>,
    prompt: &str,
    texts: &[impl AsRef<str>],
) -> Result<Vec<Vec<f32>>> {
    let lowercase = encoder.lowercase.then(|| batching.tokenizer.with_lowercase());
    let batching = BatchOptions { tokenizer: lowercase.as_ref().unwrap_or(batching.tokenizer), ..batching };
    let prompt_len = if prompt.is_empty() { 0 } else { prompt_len(batching, prompt)? };
    let texts = batching.encode_all(texts, |batching, text| match text.as_ref().trim() {
        "" => Err(ModelError::EmptyText),
        _ => batching.encode(&(prompt.to_owned() + text.as_ref()), None),
    })?;
    batching.in_batches(&texts, |texts| {
        let vectors = encoder.forward_after(&encoder.bert.batch(texts)?, prompt_len);
        let size = vectors.dims()[1];
        let all = BatchOptions::finite(encoder, vectors)?;
        Ok(all.chunks(size).map(<[f32]>::to_vec).collect())
    })
}

/// Returns the number of a prompt's tokens, including the special token at the beginning but not the one at the end.
fn prompt_len(batching: BatchOptions<'_>, prompt: &str) -> Result<usize> {
    let encoded = batching.tokenizer.encode_text(prompt, None, Some(batching.max_len), Truncation::LongestFirst)?;
    let ends = encoded.sources.last().is_some_and(Option::is_none);
    Ok(encoded.text.ids.len() - usize::from(ends))
}

/// Returns the similarity of two vectors.
pub fn similarity(a: &[f32], b: &[f32], kind: Similarity) -> f32 {
    let pairs = || a.iter().zip(b).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    match kind {
        Similarity::Cosine => cosine_similarity(a, b),
        Similarity::Dot => pairs().map(|(a, b)| a * b).sum::<f64>() as f32,
        Similarity::Euclidean => -pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt() as f32,
        Similarity::Manhattan => -pairs().map(|(a, b)| (a - b).abs()).sum::<f64>() as f32,
    }
}

/// Returns the cosine similarity of two vectors, from -1 to 1; 0 if a vector is zero.
pub fn cosine_similarity(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(a, a) * dot(b, b)).sqrt();
    if lengths > 0.0 { (dot(a, b) / lengths) as f32 } else { 0.0 }
}

/// Ranks vectors by their similarity to a query, most similar first. Returns pairs of index and similarity. Ties keep
/// their order.
///
/// ```
/// use grove_models::bert::Similarity;
/// use grove_tasks::text::rank_by_similarity;
///
/// let vectors = [vec![0.0, 1.0], vec![2.0, 0.0], vec![1.0, 1.0]];
/// let order = |kind| rank_by_similarity(&[1.0, 0.0], &vectors, kind).into_iter().map(|(i, _)| i).collect::<Vec<_>>();
/// assert_eq!(order(Similarity::Cosine), [1, 2, 0]);
/// assert_eq!(order(Similarity::Euclidean), [1, 2, 0]);
/// ```
pub fn rank_by_similarity(query: &[f32], vectors: &[Vec<f32>], kind: Similarity) -> Vec<(usize, f32)> {
    let mut order: Vec<(usize, f32)> =
        vectors.iter().enumerate().map(|(i, vector)| (i, similarity(query, vector, kind))).collect();
    order.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    order
}
