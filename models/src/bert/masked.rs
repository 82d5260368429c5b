//! Masked language modelling: sequences, batches with masked tokens, and scores.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::loss::{IGNORE_INDEX, cross_entropy};
use grove_tree::{Array, Key, Tree};

use super::{BertConfig, BertForMaskedLm, Masking, TextBatch, TextIds, input::bucketed_len};
use crate::{
    error::{ModelError, Result},
    tokenizer::Tokenizer,
};

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
) -> Result<Vec<TextIds>> {
    let mut sequences = vec![];
    for line in documents.iter().flat_map(|document| document.as_ref().lines()).filter(|line| !line.trim().is_empty()) {
        let windows = tokenizer.encode_windows(line, None, max_len, 0)?;
        sequences.extend(windows.into_iter().map(|window| window.text));
    }
    // A line of unknown characters can have special tokens only.
    let special = tokenizer.special_tokens();
    sequences.retain(|text: &TextIds| text.ids.iter().any(|id| !special.contains(id)));
    match sequences.iter().flat_map(|text| &text.ids).max() {
        None => Err(ModelError::NothingToMask),
        Some(&id) if id as usize >= config.vocab_size => {
            Err(ModelError::OtherTokenizer { id, vocab_size: config.vocab_size })
        }
        _ => Ok(sequences),
    }
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
    pub fn new(model: &BertForMaskedLm<B>, texts: &[TextIds], masking: &Masking, key: Key) -> Result<Option<Self>> {
        let Some(masked) = Masked::new(texts, masking, key) else { return Ok(None) };
        let texts = model.bert.batch(&masked.texts)?;
        Ok(Some(masked.beside(texts)))
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
    ) -> Result<Option<(Self, usize)>> {
        let Some(mut masked) = Masked::new(texts, masking, key) else { return Ok(None) };
        let count = masked.tokens.len();
        masked.places.resize(bucketed_len(count), (0, 0));
        masked.tokens.resize(bucketed_len(count), IGNORE_INDEX);
        let texts = model.bert.bucketed_batch(&masked.texts)?;
        Ok(Some((masked.beside(texts), count)))
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
    fn beside<B: Backend>(self, texts: TextBatch<B>) -> MaskedBatch<B> {
        let ([_, t], device) = (texts.dims(), texts.ids.val().device());
        let array = |values: Vec<i64>| {
            let len = values.len();
            Array::new(Tensor::from_data(TensorData::new(values, [len]), &device))
        };
        let positions = self.places.iter().map(|(row, column)| (row * t + column) as i64).collect();
        MaskedBatch { texts, positions: array(positions), tokens: array(self.tokens) }
    }
}

/// Loss and accuracy on masked tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MaskedLmScore {
    /// Mean negative log-likelihood of the masked tokens, in nats.
    pub loss: f64,
    /// Fraction of the masked tokens for which the model's most likely token is right, from 0 to 1.
    pub accuracy: f64,
    /// Number of masked tokens.
    pub tokens: usize,
}

/// Scores a model on tokens that are masked at the published rates, whatever the rates of `masking`. The same tokens of
/// the same sequences are masked in every call.
///
/// # Errors
/// As [`TextBatch::new`].
pub fn masked_lm_score<B: Backend>(
    model: &BertForMaskedLm<B>,
    texts: &[TextIds],
    masking: &Masking,
    batch_size: usize,
) -> Result<MaskedLmScore> {
    let masking = &Masking::new(masking.mask, masking.special.clone(), masking.vocab_size);
    let (mut loss, mut right, mut tokens) = (0.0, 0.0, 0);
    let mut order: Vec<&TextIds> = texts.iter().collect();
    // Sequences of similar length share a batch, which reduces padding.
    order.sort_by_key(|text| text.ids.len());
    for (i, batch) in order.chunks(batch_size).enumerate() {
        let batch: Vec<TextIds> = batch.iter().map(|&text| text.clone()).collect();
        let Some(masked) = MaskedBatch::new(model, &batch, masking, Key::new(0).fold_in(i as u32))? else { continue };
        let count = masked.count();
        let states = model.bert.forward(&masked.texts, None);
        let [b, t, n] = states.dims();
        let logits = model.logits(states.reshape([b * t, n]).select(0, masked.positions.val())); // [m, vocab_size]
        let likeliest = logits.clone().argmax(1).reshape([count]);
        right += number(likeliest.equal(masked.tokens.val()).int().sum().float());
        loss += number(cross_entropy(logits, masked.tokens.val())) * count as f64;
        tokens += count;
    }
    let all = tokens.max(1) as f64;
    Ok(MaskedLmScore { loss: loss / all, accuracy: right / all, tokens })
}

fn number<B: Backend>(x: Tensor<B, 1>) -> f64 {
    x.into_data().iter::<f64>().next().unwrap_or(f64::NAN)
}
