//! The likelihood of a text.

use burn::tensor::{DType, Tensor};
use grove_backend::Backend;
use grove_layers::loss::cross_entropy;
use std::ops::Range;

use super::{CausalLm, rows::int_tensor, run::check_tokens};
use crate::{
    error::{ModelError, Result},
    finite::not_finite,
};

/// Logits that are computed at once. Those of a long text by a large vocabulary take more memory than the model: 67 GB for
/// LLaMA 3's whole context.
const LOGITS_AT_ONCE: usize = 1 << 26;

/// Mean negative log-likelihood of a text's tokens after the first, in nats; its exponential is the perplexity.
/// `logits` are a forward pass's, `[1, t, vocab_size]`.
///
/// # Errors
/// [`ModelError::TooShortToScore`] for fewer than two tokens, [`ModelError::NotFinite`] where a logit is no number.
pub fn score<B: Backend>(logits: Tensor<B, 3>, ids: &[u32]) -> Result<f64> {
    let dtype = logits.dtype();
    if ids.len() < 2 {
        return Err(ModelError::TooShortToScore { len: ids.len() });
    }
    let last = ids.len() - 1;
    let loss = loss_of(logits.narrow(1, 0, last), &ids[1..]);
    if loss.is_finite() { Ok(loss) } else { Err(ModelError::NotFinite { tensor: None, dtype }) }
}

/// The mean negative log-likelihood of labels by the logits of each, `[1, count, vocab_size]`.
fn loss_of<B: Backend>(logits: Tensor<B, 3>, labels: &[u32]) -> f64 {
    let [_, count, vocab_size] = logits.dims();
    let logits = logits.reshape([count, vocab_size]).cast(DType::F32);
    let labels = int_tensor(&[labels.to_vec()], &logits.device()).reshape([count]);
    cross_entropy(logits, labels).into_data().iter::<f64>().next().unwrap_or(f64::NAN)
}

/// The likelihood of a text, each token after the first predicted once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// Mean negative log-likelihood of a token, in nats.
    pub loss: f64,
    /// Number of windows in which the text was read; 1 if it fits into the context.
    pub windows: usize,
}

/// Scores a text of any length. Where it is longer than the model's context, a window of that length slides over it: each
/// begins `stride` tokens after the one before, and counts only the tokens that no window before it has predicted, as in
/// transformers' guide to the perplexity of models of a fixed length. A smaller stride gives each token more of the text
/// before it, and takes more windows. `None` is half the context.
///
/// # Errors
/// [`ModelError::TooShortToScore`] for fewer than two tokens, [`ModelError::TokenOutside`] for one that the model has not,
/// [`ModelError::Option`] for a stride that is 0 or not below the context, [`ModelError::NotFinite`] with the tensor that is
/// to blame where the loss is no number.
pub fn score_text<B: Backend, M: CausalLm<B>>(model: &M, ids: &[u32], stride: Option<usize>) -> Result<Score> {
    if ids.len() < 2 {
        return Err(ModelError::TooShortToScore { len: ids.len() });
    }
    check_tokens(model, ids)?;
    let context = model.context().unwrap_or(usize::MAX);
    let stride = stride.unwrap_or((context / 2).max(1));
    // A window predicts nothing of its first token.
    if stride == 0 || stride >= context {
        let range = "at least 1 and below the model's context";
        return Err(ModelError::Option { option: "the stride", value: stride.to_string(), range });
    }
    let (mut sum, mut count) = (0.0, 0);
    let at_once = (LOGITS_AT_ONCE / model.vocab_size().max(1)).max(1);
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

/// The windows over a text of `len` tokens, and how many of its last tokens each predicts for the first time.
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
    use super::windows;

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
            // A window has a token before the first that it predicts.
            assert!(windows.iter().all(|(window, predicted)| window.len() <= context && *predicted < window.len()));
        }
    }
}
