//! Likelihood of token sequences.

use burn::tensor::{DType, Tensor};
use grove_backend::{Backend, to_dtype};
use grove_layers::loss::cross_entropy;
use grove_models::{CausalLm, ModelError, Result, not_finite};
use std::ops::Range;

use super::{rows::int_tensor, run::check_tokens};

/// Maximum number of logits that are computed at once. All logits of a long sequence can need more memory than the
/// model: 67 GB for LLaMA 3's full context.
const LOGITS_AT_ONCE: usize = 1 << 26;

/// Computes the mean negative log-likelihood of a sequence's tokens after the first, in nats. Its exponential is the
/// perplexity. `logits` are those of a forward pass, `[1, t, vocab_size]`.
///
/// # Errors
/// [`ModelError::TooShortToScore`] for fewer than two tokens, [`ModelError::NotFinite`] if the loss is not finite.
pub fn score<B: Backend>(logits: Tensor<B, 3>, ids: &[u32]) -> Result<f64> {
    let dtype = logits.dtype();
    if ids.len() < 2 {
        return Err(ModelError::TooShortToScore { len: ids.len() });
    }
    let last = ids.len() - 1;
    let loss = loss_of(logits.narrow(1, 0, last), &ids[1..]);
    if loss.is_finite() { Ok(loss) } else { Err(ModelError::NotFinite { tensor: None, dtype }) }
}

/// Computes the mean negative log-likelihood of labels, given their logits `[1, count, vocab_size]`.
fn loss_of<B: Backend>(logits: Tensor<B, 3>, labels: &[u32]) -> f64 {
    let [_, count, vocab_size] = logits.dims();
    let logits = to_dtype(logits.reshape([count, vocab_size]), DType::F32);
    let labels = int_tensor(&[labels.to_vec()], &logits.device()).reshape([count]);
    cross_entropy(logits, labels).into_data().iter::<f64>().next().unwrap_or(f64::NAN)
}

/// Likelihood of a sequence, in which each token after the first is predicted once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Mean negative log-likelihood per token, in nats.
    pub loss: f64,
    /// Number of windows; 1 if the sequence fits into the context.
    pub windows: usize,
}

/// Scores a sequence of any length. If it is longer than the model's context, a window of the context's length slides
/// over it by `stride` tokens. Each window counts only the tokens that no earlier window has predicted, as in
/// transformers' guide to the perplexity of fixed-length models. A smaller stride gives each token more context and
/// takes more windows. `None` is half the context.
///
/// # Errors
/// [`ModelError::TooShortToScore`] for fewer than two tokens; [`ModelError::TokenOutside`] for a token outside the
/// vocabulary; [`ModelError::Option`] for a stride that is 0 or not below the context; [`ModelError::NotFinite`],
/// naming the tensor at fault, if the loss is not finite.
pub fn score_text<B: Backend, M: CausalLm<B>>(model: &M, ids: &[u32], stride: Option<usize>) -> Result<Score> {
    score_in_chunks(model, ids, stride, (LOGITS_AT_ONCE / model.vocab_size().max(1)).max(1))
}

/// Computes [`score_text`] with the logits of at most `at_once` tokens at a time.
fn score_in_chunks<B: Backend, M: CausalLm<B>>(
    model: &M,
    ids: &[u32],
    stride: Option<usize>,
    at_once: usize,
) -> Result<Score> {
    if ids.len() < 2 {
        return Err(ModelError::TooShortToScore { len: ids.len() });
    }
    check_tokens(model, ids)?;
    let context = model.context().unwrap_or(usize::MAX);
    let stride = stride.unwrap_or((context / 2).max(1));
    // A window does not predict its first token, so windows must overlap.
    if stride == 0 || stride >= context {
        let range = "at least 1 and below the model's context";
        return Err(ModelError::Option { option: "the stride", value: stride.to_string(), range });
    }
    let (mut sum, mut count) = (0.0, 0);
    for (window, predicted) in windows(ids.len(), context, stride) {
        let ids = &ids[window];
        let hidden = model.features(int_tensor(&[ids.to_vec()], &model.device()), None);
        let last = ids.len() - 1;
        for begin in (last - predicted..last).step_by(at_once) {
            let end = last.min(begin + at_once);
            let logits = model.lm_head(hidden.clone().narrow(1, begin, end - begin));
            sum += loss_of(logits, &ids[begin + 1..=end]) * (end - begin) as f64;
        }
        count += 1;
        if !sum.is_finite() {
            return Err(not_finite(model));
        }
    }
    Ok(Score { loss: sum / (ids.len() - 1) as f64, windows: count })
}

/// Returns the windows over `len` tokens, each with the number of its last tokens that it predicts for the first time.
fn windows(len: usize, context: usize, stride: usize) -> Vec<(Range<usize>, usize)> {
    let (mut windows, mut begin, mut done) = (vec![], 0usize, 1);
    while done < len {
        let end = len.min(begin.saturating_add(context));
        windows.push((begin..end, end - done));
        done = end;
        begin += stride;
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::*;
    use grove_models::{Gpt2, Pretrained};

    type Flex = burn_flex::Flex;

    #[test]
    fn chunks_of_logits_give_the_same_score() {
        let folder = "../models/tests/fixtures/gpt2/tiny_a";
        let (model, _) = Gpt2::<Flex>::from_path(folder, &Default::default(), None).unwrap();
        let context = model.context().unwrap();
        let ids: Vec<u32> = (0..2 * context + 3).map(|i| (i * i % model.vocab_size()) as u32).collect();
        for ids in [&ids[..context], &ids[..]] {
            let whole = score_text(&model, ids, None).unwrap();
            assert_eq!(whole.windows > 1, ids.len() > context);
            // One token at a time, chunks with and without a remainder, and one chunk.
            for at_once in [1, 2, 3, context / 2, context - 1, usize::MAX / 2] {
                let found = score_in_chunks(&model, ids, None, at_once).unwrap();
                assert_eq!(found.windows, whole.windows);
                let (found, whole) = (found.loss, whole.loss);
                assert!((found - whole).abs() < 1e-5 * whole, "{at_once} at once: {found} and {whole}");
            }
        }
    }

    #[test]
    fn every_token_after_the_first_is_predicted_once() {
        assert_eq!(windows(5, 8, 4), [(0..5, 4)]);
        assert_eq!(windows(8, 8, 4), [(0..8, 7)]);
        assert_eq!(windows(9, 8, 4), [(0..8, 7), (4..9, 1)]);
        assert_eq!(windows(18, 8, 4), [(0..8, 7), (4..12, 4), (8..16, 4), (12..18, 2)]);
        assert_eq!(windows(5, 2, 1), [(0..2, 1), (1..3, 1), (2..4, 1), (3..5, 1)]);
        for (len, context, stride) in [(100, 7, 3), (101, 7, 6), (64, 64, 32), (2, 2, 1)] {
            let windows = windows(len, context, stride);
            assert_eq!(windows.iter().map(|(_, predicted)| predicted).sum::<usize>(), len - 1);
            // Each window has a token before the first one that it predicts.
            assert!(windows.iter().all(|(window, predicted)| window.len() <= context && *predicted < window.len()));
        }
    }
}
