//! Data for masked language modelling: sequences, their corruption, and batches.

use burn::tensor::Int;
use grove_backend::Backend;
use grove_layers::loss::IGNORE_INDEX;
use grove_models::{
    BertConfig, ModelError,
    bert::{BertForMaskedLm, TextBatch, bucketed_len},
};
use grove_text::{TextIds, Tokenizer};
use grove_tree::{Array, Key, Tree};

use super::DataError;
use crate::arrays::integers;

/// Corruption of sequences for masked language modelling (Devlin et al., 2019, section 3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Masking {
    /// Mask token.
    pub mask: u32,
    /// Tokens that are never selected, such as special tokens.
    pub special: Vec<u32>,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Fraction of the other tokens that are selected.
    pub rate: f32,
    /// Fraction of the selected tokens that are replaced by the mask token.
    pub masked: f32,
    /// Fraction of the selected tokens that are replaced by a random token. The remaining ones are unchanged.
    pub random: f32,
}

impl Masking {
    /// Creates a masking with the published rates: 15 % of the tokens are selected, of which 80 % are masked and 10 %
    /// become random.
    pub fn new(mask: u32, special: Vec<u32>, vocab_size: usize) -> Self {
        Self { mask, special, vocab_size, rate: 0.15, masked: 0.8, random: 0.1 }
    }

    /// Returns the corrupted tokens and the labels: the original token if it was selected, else -100. Selects at least
    /// one token if there is one that is not special.
    pub fn apply(&self, ids: &[u32], key: Key) -> (Vec<u32>, Vec<i64>) {
        let (mut corrupted, mut labels) = (ids.to_vec(), vec![-100; ids.len()]);
        let open: Vec<usize> = (0..ids.len()).filter(|&i| !self.special.contains(&ids[i])).collect();
        if open.is_empty() {
            return (corrupted, labels);
        }
        let [choice, fate, token, one] = [0, 1, 2, 3].map(|part| key.fold_in(part));
        let mut chosen = choice.bernoulli_vec(open.len(), self.rate);
        if !chosen.contains(&true) {
            chosen[one.permutation(open.len())[0]] = true;
        }
        let fates = fate.uniform_vec(open.len(), 0.0, 1.0);
        let tokens = token.randint_vec(open.len(), 0, self.vocab_size.try_into().unwrap_or(i32::MAX));
        for (n, &i) in open.iter().enumerate().filter(|&(n, _)| chosen[n]) {
            labels[i] = i64::from(ids[i]);
            if fates[n] < self.masked {
                corrupted[i] = self.mask;
            } else if fates[n] < self.masked + self.random {
                corrupted[i] = tokens[n] as u32;
            }
        }
        (corrupted, labels)
    }
}

/// Returns the sequences for masking: each non-blank line of the documents, in parts of at most `max_len` tokens,
/// including special tokens. Lines without a token that can be masked are skipped.
///
/// # Errors
/// The tokenizer fails or is not the model's, or no line has a token that can be masked.
pub fn masked_lm_sequences(
    documents: &[impl AsRef<str>],
    tokenizer: &Tokenizer,
    config: &BertConfig,
    max_len: usize,
) -> Result<Vec<TextIds>, DataError> {
    let mut sequences = vec![];
    for line in documents.iter().flat_map(|document| document.as_ref().lines()).filter(|line| !line.trim().is_empty()) {
        let windows = tokenizer.encode_windows(line, None, max_len, 0).map_err(DataError::other)?;
        sequences.extend(windows.into_iter().map(|window| window.text));
    }
    // A line of unknown characters can have special tokens only.
    let special = tokenizer.special_tokens();
    sequences.retain(|text: &TextIds| text.ids.iter().any(|id| !special.contains(id)));
    if sequences.is_empty() {
        return Err(DataError::NothingToMask);
    }
    let ids = sequences.iter().flat_map(|text| &text.ids);
    tokenizer.check_ids(ids, config.vocab_size).map_err(DataError::other)?;
    Ok(sequences)
}

/// A batch of sequences with masked tokens, the positions of these tokens, and the original tokens.
#[derive(Tree, Clone, Debug)]
pub struct MaskedBatch<B: Backend> {
    /// Corrupted sequences, `[b, t]`.
    pub texts: TextBatch<B>,
    /// Positions of the selected tokens, `[m]`, each `row * t + column`.
    pub positions: Array<B, 1, Int>,
    /// Original tokens, `[m]`; [`IGNORE_INDEX`] for positions that are padding of this array.
    pub tokens: Array<B, 1, Int>,
}

impl<B: Backend> MaskedBatch<B> {
    /// Masks tokens of sequences at random. Returns `None` if no sequence has a token that can be masked.
    ///
    /// # Errors
    /// As [`TextBatch::new`].
    pub fn new(
        model: &BertForMaskedLm<B>,
        texts: &[TextIds],
        masking: &Masking,
        key: Key,
    ) -> Result<Option<Self>, ModelError> {
        let Some(masked) = Masked::new(texts, masking, key) else { return Ok(None) };
        let texts = model.bert.batch(&masked.texts)?;
        Ok(Some(masked.into_batch(texts)))
    }

    /// Creates a batch as [`new`](Self::new) does, padded to one of a few shapes, so that a traced function needs few
    /// programs. Also returns the number of selected tokens.
    ///
    /// # Errors
    /// As [`TextBatch::new`].
    pub fn bucketed(
        model: &BertForMaskedLm<B>,
        texts: &[TextIds],
        masking: &Masking,
        key: Key,
    ) -> Result<Option<(Self, usize)>, ModelError> {
        let Some(mut masked) = Masked::new(texts, masking, key) else { return Ok(None) };
        let count = masked.tokens.len();
        masked.places.resize(bucketed_len(count), (0, 0));
        masked.tokens.resize(bucketed_len(count), IGNORE_INDEX);
        let texts = model.bert.bucketed_batch(&masked.texts)?;
        Ok(Some((masked.into_batch(texts), count)))
    }

    /// Returns the number of positions, `m`.
    pub fn count(&self) -> usize {
        self.tokens.shape()[0]
    }
}

/// Sequences with masked tokens on the host.
struct Masked {
    texts: Vec<TextIds>,
    /// Row and column of each selected token.
    places: Vec<(usize, usize)>,
    tokens: Vec<i64>,
}

impl Masked {
    /// Returns `None` if no sequence has a token that can be masked.
    fn new(texts: &[TextIds], masking: &Masking, key: Key) -> Option<Self> {
        let mut masked = Self { texts: vec![], places: vec![], tokens: vec![] };
        for (row, text) in texts.iter().enumerate() {
            let (ids, labels) = masking.apply(&text.ids, key.fold_in(row as u32));
            for (column, &label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
                masked.places.push((row, column));
                masked.tokens.push(label);
            }
            masked.texts.push(TextIds { ids, token_types: text.token_types.clone() });
        }
        (!masked.tokens.is_empty()).then_some(masked)
    }

    /// Returns the batch, given its sequences on a device.
    fn into_batch<B: Backend>(self, texts: TextBatch<B>) -> MaskedBatch<B> {
        let ([_, t], device) = (texts.dims(), texts.ids.val().device());
        let positions = self.places.iter().map(|(row, column)| (row * t + column) as i64).collect();
        MaskedBatch { texts, positions: integers(positions, &device), tokens: integers(self.tokens, &device) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_match_those_of_bert() {
        let masking = Masking::new(3, vec![0, 1, 2], 1000);
        let ids: Vec<u32> = (0..20_000).map(|i| if i % 20 == 0 { i % 3 } else { 4 + i % 996 }).collect();
        let (corrupted, labels) = masking.apply(&ids, Key::new(0));
        let chosen: Vec<usize> = (0..ids.len()).filter(|&i| labels[i] != -100).collect();
        let part =
            |test: &dyn Fn(usize) -> bool| chosen.iter().filter(|&&i| test(i)).count() as f64 / chosen.len() as f64;
        assert!((chosen.len() as f64 / 19_000.0 - 0.15).abs() < 0.01);
        assert!((part(&|i| corrupted[i] == 3) - 0.8).abs() < 0.02);
        assert!((part(&|i| corrupted[i] == ids[i]) - 0.1).abs() < 0.02);
        for i in 0..ids.len() {
            assert!(labels[i] == i64::from(ids[i]) || (labels[i] == -100 && corrupted[i] == ids[i]));
            assert!(labels[i] == -100 || ids[i] > 2);
        }
        assert_eq!(masking.apply(&ids, Key::new(0)), (corrupted, labels));
        assert_eq!(masking.apply(&[0, 9, 2], Key::new(5)).1, [-100, 9, -100]);
        assert_eq!(masking.apply(&[0, 2], Key::new(5)), (vec![0, 2], vec![-100, -100]));
    }
}
