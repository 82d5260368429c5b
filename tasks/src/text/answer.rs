use burn::tensor::DType;
use grove_backend::Backend;
use serde::Serialize;
use std::ops::Range;

use super::BatchOptions;
use grove_models::{ModelError, Result, bert::BertForQuestionAnswering, check_finite};
use grove_text::{EncodedText, TextIds};

/// Options for question answering, with the defaults of transformers' pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerOptions {
    /// Number of answers to return.
    pub top_k: usize,
    /// Maximum length of an answer, in tokens.
    pub max_answer_len: usize,
    /// Overlap of the windows over a long text, in tokens; at most half a window.
    pub stride: usize,
    /// If true, the answers include the empty one, which means that the text does not answer the question (SQuAD 2).
    pub handle_impossible_answer: bool,
    /// If true, answers are extended to whole words.
    pub align_to_words: bool,
}

impl Default for AnswerOptions {
    fn default() -> Self {
        Self { top_k: 1, max_answer_len: 15, stride: 128, handle_impossible_answer: false, align_to_words: true }
    }
}

/// A span of a text that may be the answer. Its JSON form has the keys of transformers' pipeline: `answer`, `score`,
/// `start`, `end`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Answer {
    /// Text of the span; empty if the text does not answer the question.
    #[serde(rename = "answer")]
    pub text: String,
    /// Byte range of the span in the text.
    #[serde(flatten)]
    pub range: Range<usize>,
    /// Product of the probabilities of both ends, among the text's tokens in the window and the window's first token.
    /// Scores of spans with the same words are added, also across overlapping windows. The empty answer has the minimum
    /// of its windows' scores.
    pub score: f32,
}

/// Returns the most likely answers to a question in a text of any length, most likely first. Results match
/// transformers' last question-answering pipeline (4.57).
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
    let stride = options.stride.min(batching.max_len / 2);
    let windows = batching.tokenizer.encode_windows(question, Some(text), batching.max_len, stride)?;
    let ends = batching.in_batches(&windows, |texts: &[TextIds]| {
        let logits = model.forward(&model.bert.batch(texts)?, None);
        let t = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
        let [starts, ends] = logits.map(|x| x.cast(DType::F32).into_data().iter::<f32>().collect::<Vec<f32>>());
        let rows = starts.chunks(t).zip(ends.chunks(t));
        Ok(rows.map(|(starts, ends)| (starts.to_vec(), ends.to_vec())).collect())
    })?;
    let first = batching.tokenizer.cls_token();
    let mut answers: Vec<Answer> = vec![];
    let mut impossible = f32::INFINITY;
    for (window, (starts, ends)) in windows.iter().zip(ends) {
        for logits in [&starts, &ends] {
            // Logits of padding, after the window's tokens, are minus infinity.
            check_finite(model, logits.iter().take(window.sources.len()).copied().map(f64::from))?;
        }
        let [starts, ends] = [starts, ends].map(|logits| probabilities(window, first, &logits));
        impossible = impossible.min(starts[0] * ends[0]);
        for (from, to, score) in best_spans(window, &starts, &ends, options) {
            let range = span(window, from, to, options.align_to_words);
            let Some(part) = text.get(range.clone()).filter(|part| !part.is_empty()) else { continue };
            let same = |answer: &&mut Answer| answer.text.to_lowercase() == part.to_lowercase();
            match answers.iter_mut().find(same) {
                Some(known) => known.score += score,
                None => answers.push(Answer { text: part.into(), range, score }),
            }
        }
    }
    if options.handle_impossible_answer {
        answers.push(Answer { text: String::new(), range: 0..0, score: impossible });
    }
    answers.sort_by(|a, b| b.score.total_cmp(&a.score));
    answers.truncate(options.top_k);
    Ok(answers)
}

/// Computes the softmax over the text's own tokens and CLS tokens; 0 for all others.
fn probabilities(window: &EncodedText, first: Option<u32>, logits: &[f32]) -> Vec<f32> {
    let own = |i: usize| window.sources[i] == Some(1) || first == Some(window.text.ids[i]);
    let largest = (0..window.sources.len()).filter(|&i| own(i)).map(|i| logits[i]).fold(f32::NEG_INFINITY, f32::max);
    let exp: Vec<f32> =
        (0..window.sources.len()).map(|i| if own(i) { (logits[i] - largest).exp() } else { 0.0 }).collect();
    let sum: f32 = exp.iter().sum();
    exp.into_iter().map(|x| if sum > 0.0 { x / sum } else { 0.0 }).collect()
}

/// Returns the most likely spans, most likely first: first token, last token and score. Returns more spans if answers
/// are aligned to words, since several can then become the same. As in transformers, CLS tokens in the question count
/// as candidates before the list is truncated.
fn best_spans(window: &EncodedText, starts: &[f32], ends: &[f32], options: &AnswerOptions) -> Vec<(usize, usize, f32)> {
    let own = |i: usize| window.sources[i] == Some(1);
    let mut spans = vec![];
    for (from, p) in starts.iter().enumerate().skip(1) {
        for (to, q) in ends.iter().enumerate().skip(from).take(options.max_answer_len) {
            if p * q > 0.0 {
                spans.push((from, to, p * q));
            }
        }
    }
    spans.sort_by(|a, b| b.2.total_cmp(&a.2));
    spans.truncate(if options.align_to_words { 2 * options.top_k + 10 } else { options.top_k });
    spans.retain(|&(from, to, _)| own(from) && own(to));
    spans
}

/// Returns the byte range of a span, or of the words that it touches.
fn span(window: &EncodedText, from: usize, to: usize, words: bool) -> Range<usize> {
    let of = |i: usize| window.words[i].filter(|_| words);
    let same = |word: u32| {
        move |&i: &usize| window.sources[i] == Some(1) && window.words[i] == Some(word) && !window.offsets[i].is_empty()
    };
    let all = || 0..window.sources.len();
    let begin = of(from).and_then(|word| all().find(same(word))).unwrap_or(from);
    let end = of(to).and_then(|word| all().rfind(same(word))).unwrap_or(to);
    window.offsets[begin].start..window.offsets[end].end
}
