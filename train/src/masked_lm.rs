//! Training and evaluation of masked language models.

use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend};
use grove_layers::loss::cross_entropy;
use grove_models::bert::BertForMaskedLm;
use grove_optim::GradientTransformation;
use grove_text::TextIds;
use grove_tree::Key;
use std::sync::Arc;

use crate::{
    Evaluation, FitOptions, Fitted, JitLoss, Outcome, Result,
    arrays::scalar,
    data::{Examples, MaskedBatch, Masking},
    fit, fit_jitted,
};

/// Loss and evaluation of [`fit_masked_lm`].
#[derive(Clone, Copy, Debug)]
pub struct MaskedLmTask<'a> {
    /// Corruption of training sequences. Evaluations mask tokens at the published rates.
    pub masking: &'a Masking,
    /// Evaluation sequences.
    pub held_out: &'a [TextIds],
    /// Evaluation batch size.
    pub batch_size: usize,
    /// If true, the loss and its gradient are compiled, as in [`fit_jitted`]. Sequences are padded to a few fixed
    /// lengths, so that few programs are compiled; the dropout masks differ from those of the eager loop.
    pub jit: bool,
}

/// Trains a BERT masked language model, with newly masked tokens in each step. Its evaluations have the metrics `loss`
/// and `accuracy`.
///
/// - `data`: sequences with at least one token that can be masked; see
///   [`masked_lm_sequences`](crate::data::masked_lm_sequences)
///
/// # Errors
/// As [`fit`](crate::fit); the model rejects a sequence.
///
/// # Panics
/// If no token of a batch can be masked.
pub fn fit_masked_lm<B: Backend, T: GradientTransformation<B, BertForMaskedLm<B>>>(
    model: BertForMaskedLm<B>,
    optimizer: &T,
    data: &Arc<Examples<TextIds, Vec<TextIds>>>,
    task: MaskedLmTask<'_>,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<BertForMaskedLm<B>>> {
    let MaskedLmTask { masking, held_out, batch_size, jit } = task;
    for batch in data.items().chunks(batch_size.max(1)) {
        model.bert.batch(batch)?;
    }
    let evaluate = |model: &BertForMaskedLm<B>| {
        let found = masked_lm_score(model, held_out, masking, batch_size)?;
        Ok(Evaluation::from([("loss".into(), found.loss), ("accuracy".into(), found.accuracy)]))
    };
    let [refused, unmasked] =
        ["the model has accepted all sequences", "a text has a token besides those that mark beginning and end"];
    if !(jit || B::LAZY) {
        let loss = |model: BertForMaskedLm<Autodiff<B>>, batch: &Vec<TextIds>, key: Key| {
            let masked = MaskedBatch::new(&model, batch, masking, noise(key)).expect(refused).expect(unmasked);
            Outcome::<B, BertForMaskedLm<B>>::new(loss_of(&model, &masked, key)).weight(masked.count() as f64)
        };
        return fit(model, optimizer, data, loss, evaluate, key, options);
    }
    let arrays = |model: &BertForMaskedLm<B>, batch: &Vec<TextIds>, key| {
        let masked = MaskedBatch::bucketed(model, batch, masking, noise(key)).expect(refused);
        let (masked, count) = masked.expect(unmasked);
        (masked, count as f64)
    };
    let loss = |model: BertForMaskedLm<_>, masked: MaskedBatch<_>, key| loss_of(&model, &masked, key);
    fit_jitted::<B, _, _, _, _, _, _, _>(model, optimizer, data, JitLoss { arrays, loss }, evaluate, key, options)
}

/// Returns the key of the masking of a step.
fn noise(key: Key) -> Key {
    key.fold_in(0)
}

/// Returns the loss of a step with this key.
fn loss_of<B: Backend>(model: &BertForMaskedLm<B>, masked: &MaskedBatch<B>, key: Key) -> Tensor<B, 1> {
    model.loss_at(&masked.texts, masked.positions.val(), masked.tokens.val(), Some(key.fold_in(1)))
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
/// As [`TextBatch::new`](grove_models::bert::TextBatch::new).
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
        right += scalar(likeliest.equal(masked.tokens.val()).int().sum().into_data());
        loss += scalar(cross_entropy(logits, masked.tokens.val()).into_data()) * count as f64;
        tokens += count;
    }
    let all = tokens.max(1) as f64;
    Ok(MaskedLmScore { loss: loss / all, accuracy: right / all, tokens })
}
