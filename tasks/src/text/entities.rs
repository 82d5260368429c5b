use burn::tensor::{DType, activation::softmax};
use grove_backend::Backend;
use serde::Serialize;
use std::{collections::BTreeMap, ops::Range};

use super::BatchOptions;
use grove_models::{ModelError, Result, bert::BertForTokenClassification, largest};
use grove_text::{EncodedText, TextIds};

/// A labelled span of a text.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Entity {
    /// Label, without the prefix `B-` or `I-`.
    pub label: String,
    /// Text of the span.
    pub text: String,
    /// Byte range of the span in the text; `start` and `end` in JSON.
    #[serde(flatten)]
    pub range: Range<usize>,
    /// Mean of the probabilities of its words.
    pub score: f32,
}

/// A word's label, with its probability.
struct Word {
    range: Range<usize>,
    class: usize,
    score: f32,
    /// Number of tokens between the word and the nearest end of its window. For a word in two windows, the window with
    /// more context determines the label.
    within: usize,
}

/// Returns the labelled spans of a text of any length, in text order. Each word has the label of its first token.
/// Consecutive words with the same label form one span. The label `O` forms no span.
///
/// # Errors
/// The text is empty, the tokenizer is not the model's, or the model's results are not finite.
pub fn entities<B: Backend>(
    model: &BertForTokenClassification<B>,
    batching: BatchOptions<'_>,
    text: &str,
    stride: usize,
) -> Result<Vec<Entity>> {
    if text.trim().is_empty() {
        return Err(ModelError::EmptyText);
    }
    let labels = &model.bert.config.labels;
    let stride = stride.min(batching.max_len / 4);
    let windows = batching.tokenizer.encode_windows(text, None, batching.max_len, stride)?;
    let scores = batching.in_batches(&windows, |texts: &[TextIds]| {
        let logits = model.forward(&model.bert.batch(texts)?, None).cast(DType::F32); // [b, t, labels]
        let t = logits.dims()[1];
        let all = BatchOptions::finite(model, softmax(logits, 2))?;
        Ok(all.chunks(t * labels.len()).map(<[f32]>::to_vec).collect())
    })?;
    let mut words: BTreeMap<usize, Word> = BTreeMap::new(); // by first byte
    for (window, scores) in windows.iter().zip(&scores) {
        for word in of_window(window, scores, labels.len()) {
            let known = words.get(&word.range.start);
            if known.is_none_or(|known| known.within < word.within) {
                words.insert(word.range.start, word);
            }
        }
    }
    let words: Vec<Word> = words.into_values().collect();
    Ok(join(&words, labels, text))
}

/// Returns the words of a window.
fn of_window(window: &EncodedText, scores: &[f32], classes: usize) -> Vec<Word> {
    let count = window.sources.len();
    let mut words: Vec<Word> = vec![];
    let mut last = None;
    for i in (0..count).filter(|&i| window.sources[i].is_some()) {
        // Without word boundaries from the tokenizer, each token is a word.
        let number = window.words[i].map_or((i, false), |word| (word as usize, true));
        if last == Some(number) {
            words.last_mut().expect("there was one").range.end = window.offsets[i].end;
            continue;
        }
        last = Some(number);
        let scores = &scores[i * classes..][..classes];
        let class = largest(scores, 1)[0];
        let within = i.min(count - 1 - i);
        words.push(Word { range: window.offsets[i].clone(), class, score: scores[class], within });
    }
    // A token can be empty, such as a space at the beginning of a word.
    words.retain(|word| !word.range.is_empty());
    words
}

fn join(words: &[Word], labels: &[String], text: &str) -> Vec<Entity> {
    let mut parts: Vec<(Entity, usize)> = vec![];
    let mut open = false;
    for word in words {
        let label = &labels[word.class];
        let (begins, name) = match label.split_once('-') {
            Some(("B", name)) => (true, name),
            Some(("I", name)) => (false, name),
            _ => (false, &**label),
        };
        if name == "O" {
            open = false;
            continue;
        }
        match parts.last_mut().filter(|(part, _)| open && !begins && part.label == name) {
            Some((part, count)) => {
                part.range.end = word.range.end;
                part.score += word.score;
                *count += 1;
            }
            None => {
                let (label, range) = (name.to_owned(), word.range.clone());
                parts.push((Entity { label, text: String::new(), range, score: word.score }, 1));
            }
        }
        open = true;
    }
    let finish = |(part, count): (Entity, usize)| Entity {
        text: text.get(part.range.clone()).unwrap_or_default().into(),
        score: part.score / count as f32,
        ..part
    };
    parts.into_iter().map(finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_token_of_a_word_decides_also_without_bytes_of_its_own() {
        let (offsets, words) =
            ([0..0, 0..0, 0..2, 3..3, 3..4, 5..5, 0..0], [None, Some(0), Some(0), Some(1), Some(1), Some(2), None]);
        let window = EncodedText {
            text: TextIds { ids: vec![0; 7], token_types: vec![] },
            offsets: offsets.to_vec(),
            sources: words.map(|word| word.map(|_| 0)).to_vec(),
            words: words.to_vec(),
            truncated: false,
        };
        let scores: Vec<f32> = (0..7).flat_map(|i| [0.1 * i as f32, 0.35]).collect();
        let found = of_window(&window, &scores, 2);
        let found: Vec<_> = found.into_iter().map(|word| (word.range, word.class, word.score)).collect();
        assert_eq!(found, [(0..2, 1, 0.35), (3..4, 1, 0.35)]);
    }

    #[test]
    fn words_that_go_on_are_one_part() {
        let labels = ["O", "B-PER", "I-PER", "I-LOC"].map(str::to_owned);
        let text = "Ann Lee met Bob in Bath";
        let classes = [(0..3, 1), (4..7, 2), (8..11, 0), (12..15, 2), (16..18, 0), (19..23, 3)];
        let words = classes.map(|(range, class)| Word { range, class, score: 0.5, within: 1 });
        let found: Vec<_> = join(&words, &labels, text).into_iter().map(|part| (part.label, part.text)).collect();
        let expected = [("PER", "Ann Lee"), ("PER", "Bob"), ("LOC", "Bath")];
        assert_eq!(found, expected.map(|(label, text)| (label.to_owned(), text.to_owned())));
    }
}
