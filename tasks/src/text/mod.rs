//! Tasks of encoders, from texts to results. Each task takes any number of texts, processes them in batches of similar
//! length, and returns the results in the order of the texts.

mod answer;
mod classify;
mod embed;
mod entities;
mod fill_mask;

pub use answer::{Answer, AnswerOptions, answer};
pub use classify::classify;
pub use embed::{cosine_similarity, embed, embed_after, rank_by_similarity, similarity};
pub use entities::{Entity, entities};
pub use fill_mask::{Candidate, Filled, check_masks, fill_mask};

use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Tree;

use grove_models::{ModelError, Result, check_finite};
use grove_text::{EncodedText, TextIds, Tokenizer, Truncation};

/// Options for batching texts.
#[derive(Clone, Copy)]
pub struct BatchOptions<'a> {
    /// The model's tokenizer.
    pub tokenizer: &'a Tokenizer,
    /// Maximum sequence length, in tokens. Longer texts are truncated, or split into windows if the task's
    /// documentation says so.
    pub max_len: usize,
    /// Batch size, in texts.
    pub batch_size: usize,
    /// Called after each batch with its number of texts, for progress bars.
    pub progress: Option<&'a dyn Fn(usize)>,
}

impl<'a> BatchOptions<'a> {
    /// Creates options with batches of 32 texts and without a progress callback.
    pub fn new(tokenizer: &'a Tokenizer, max_len: usize) -> Self {
        Self { tokenizer, max_len, batch_size: 32, progress: None }
    }

    /// Encodes a text or a pair, truncated to the maximum length.
    fn encode(&self, text: &str, pair: Option<&str>) -> Result<EncodedText> {
        if text.trim().is_empty() || pair.is_some_and(|pair| pair.trim().is_empty()) {
            return Err(ModelError::EmptyText);
        }
        Ok(self.tokenizer.encode_text(text, pair, Some(self.max_len), Truncation::LongestFirst)?)
    }

    /// Encodes several texts. An error names the text that caused it.
    fn encode_all<T>(
        &self,
        texts: impl IntoIterator<Item = T, IntoIter: ExactSizeIterator>,
        encode: impl Fn(&Self, T) -> Result<EncodedText>,
    ) -> Result<Vec<EncodedText>> {
        let texts = texts.into_iter();
        let several = texts.len() > 1;
        let one = |(i, text)| {
            encode(self, text).map_err(|error| match several {
                true => ModelError::InText { number: i + 1, error: Box::new(error) },
                false => error,
            })
        };
        texts.enumerate().map(one).collect()
    }

    /// Copies scores to the host and checks that they are finite.
    fn finite<B: Backend, const D: usize>(model: &impl Tree<B>, scores: Tensor<B, D>) -> Result<Vec<f32>> {
        let scores: Vec<f32> = scores.into_data().iter().collect();
        check_finite(model, scores.iter().copied().map(f64::from))?;
        Ok(scores)
    }

    /// Processes texts in batches of similar length, and returns the results in the order of the texts.
    fn in_batches<T>(
        &self,
        texts: &[EncodedText],
        mut read: impl FnMut(&[TextIds]) -> Result<Vec<T>>,
    ) -> Result<Vec<T>> {
        let mut results: Vec<Option<T>> = texts.iter().map(|_| None).collect();
        for batch in by_length(texts.iter().map(|text| text.text.ids.len()), self.batch_size) {
            let ids: Vec<TextIds> = batch.iter().map(|&i| texts[i].text.clone()).collect();
            for (&i, result) in batch.iter().zip(read(&ids)?) {
                results[i] = Some(result);
            }
            if let Some(progress) = self.progress {
                progress(batch.len());
            }
        }
        Ok(results.into_iter().flatten().collect())
    }
}

/// Groups indices of texts into batches of at most `size`, longest texts first. This reduces padding, and the batch
/// that needs most memory comes first.
pub fn by_length(lengths: impl IntoIterator<Item = usize>, size: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<(usize, usize)> = lengths.into_iter().enumerate().collect();
    order.sort_by_key(|&(i, length)| (std::cmp::Reverse(length), i));
    order.chunks(size.max(1)).map(|batch| batch.iter().map(|&(i, _)| i).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_of_similar_length() {
        assert_eq!(by_length([3, 9, 1, 9, 4], 2), [vec![1, 3], vec![4, 0], vec![2]]);
        assert!(by_length([], 2).is_empty());
    }
}
