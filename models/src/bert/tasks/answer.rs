use burn::tensor::DType;
use grove_backend::Backend;
use serde::Serialize;
use std::ops::Range;

use super::BatchOptions;
use crate::{
    bert::{BertForQuestionAnswering, TextIds},
    error::{ModelError, Result},
    finite::check_finite,
    tokenizer::EncodedText,
};

/// Options for question answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Number of answers to return.
    pub top_k: usize,
    /// Longest answer, in tokens.
    pub max_answer_len: usize,
    /// Overlap of a long text's windows, in tokens.
    pub stride: usize,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { top_k: 1, max_answer_len: 15, stride: 128 }
    }
}

/// A part of a text that may be the answer. In JSON it has the keys of transformers' pipeline: `answer`, `score`, `start`,
/// `end`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// The part.
    #[serde(rename = "answer")]
    pub text: String,
    /// Its range in the text, in bytes.
    #[serde(flatten)]
    pub range: Range<usize>,
    /// The product of both ends' probabilities, among the text's tokens in a window.
    pub score: f32,
}

/// The most likely answers to a question in a text of any length, the most likely first.
///
/// # Errors
/// Question or text is empty, the question leaves no room for the text, the tokenizer is not the model's, or the
/// model's results are not finite.
pub fn answer<B: Backend>(
    model: &BertForQuestionAnswering<B>,
    batching: BatchOptions<'_>,
    question: &str,
    text: &str,
    options: &AnswerOptions,
) -> Result<Vec<Answer>> {
    if question.trim().is_empty() || text.trim().is_empty() {
        return Err(ModelError::EmptyText);
    }
    let stride = options.stride.min(batching.max_len / 4);
    let windows = batching.tokenizer.encode_windows(question, Some(text), batching.max_len, stride)?;
    let ends = batching.in_batches(&windows, |texts: &[TextIds]| {
        let logits = model.forward(&model.bert.batch(texts)?, None);
        let t = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
        let [starts, ends] = logits.map(|x| x.cast(DType::F32).into_data().iter::<f32>().collect::<Vec<f32>>());
        let rows = starts.chunks(t).zip(ends.chunks(t));
        Ok(rows.map(|(starts, ends)| (starts.to_vec(), ends.to_vec())).collect())
    })?;
    let mut answers: Vec<Answer> = vec![];
    for (window, (starts, ends)) in windows.iter().zip(ends) {
        for logits in [&starts, &ends] {
            // Those of padding, behind the window's tokens, are minus infinity.
            check_finite(model, logits.iter().take(window.sources.len()).copied().map(f64::from))?;
        }
        let [starts, ends] = [starts, ends].map(|logits| probabilities(window, &logits));
        for (first, p) in starts.iter().enumerate().filter(|(_, p)| **p > 0.0) {
            for (last, q) in ends.iter().enumerate().skip(first).take(options.max_answer_len) {
                let range = window.offsets[first].start..window.offsets[last].end;
                if *q > 0.0 && !range.is_empty() {
                    keep(&mut answers, options.top_k, range, p * q, text);
                }
            }
        }
    }
    Ok(answers)
}

/// The softmax over the tokens of the text itself; 0 for the others.
fn probabilities(window: &EncodedText, logits: &[f32]) -> Vec<f32> {
    let own = |i: usize| window.sources[i] == Some(1);
    let largest = (0..window.sources.len()).filter(|&i| own(i)).map(|i| logits[i]).fold(f32::NEG_INFINITY, f32::max);
    let exp: Vec<f32> =
        (0..window.sources.len()).map(|i| if own(i) { (logits[i] - largest).exp() } else { 0.0 }).collect();
    let sum: f32 = exp.iter().sum();
    exp.into_iter().map(|x| if sum > 0.0 { x / sum } else { 0.0 }).collect()
}

/// Keeps the best `k`, one for each range.
fn keep(answers: &mut Vec<Answer>, k: usize, range: Range<usize>, score: f32, text: &str) {
    if let Some(known) = answers.iter_mut().find(|answer| answer.range == range) {
        known.score = known.score.max(score);
    } else if answers.len() < k || answers.last().is_some_and(|last| score > last.score) {
        let Some(part) = text.get(range.clone()) else { return };
        answers.push(Answer { text: part.into(), range, score });
    } else {
        return;
    }
    answers.sort_by(|a, b| b.score.total_cmp(&a.score));
    answers.truncate(k);
}
