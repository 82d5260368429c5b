use grove_backend::{Autodiff, Backend};
use grove_models::bert::{BertForMaskedLm, MaskedBatch, Masking, TextIds, masked_lm_score};
use grove_optim::GradientTransformation;
use grove_tree::Key;
use std::sync::Arc;

use crate::{Evaluation, FitOptions, Fitted, Outcome, Result, data::Examples, fit};

/// Trains a BERT as a masked language model, with other tokens masked in each step, and evaluates it on `held_out` with tokens
/// masked at the published rates: `loss` and `accuracy`.
///
/// - `data`: sequences, each with a token that can be masked; see
///   [`masked_lm_sequences`](grove_models::bert::masked_lm_sequences)
/// - `held_out`: sequences for the evaluation, `batch_size` at once
///
/// # Errors
/// As [`fit`](crate::fit); the model refuses a held-out sequence.
///
/// # Panics
/// If the model refuses a sequence, or no token of a batch can be masked.
#[allow(clippy::too_many_arguments)] // Those of `fit`, and the data of the evaluation.
pub fn fit_masked_lm<B: Backend, T: GradientTransformation<B, BertForMaskedLm<B>>>(
    model: BertForMaskedLm<B>,
    optimizer: &T,
    data: &Arc<Examples<TextIds, Vec<TextIds>>>,
    masking: &Masking,
    held_out: &[TextIds],
    batch_size: usize,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<BertForMaskedLm<B>>> {
    let loss = |model: BertForMaskedLm<Autodiff<B>>, batch: &Vec<TextIds>, key: Key| {
        let [noise, dropout] = [key.fold_in(0), key.fold_in(1)];
        let masked = MaskedBatch::new(&model, batch, masking, noise).expect("tokens are the model's");
        let masked = masked.expect("a text has a token besides those that mark beginning and end");
        let count = masked.count();
        let loss = model.loss_at(&masked.texts, masked.positions, masked.tokens, Some(dropout));
        Outcome::<B, BertForMaskedLm<B>>::new(loss).weight(count as f64)
    };
    let evaluate = |model: &BertForMaskedLm<B>| {
        let found = masked_lm_score(model, held_out, masking, batch_size)?;
        Ok(Evaluation::from([("loss".into(), found.loss), ("accuracy".into(), found.accuracy)]))
    };
    fit(model, optimizer, data, loss, evaluate, key, options)
}
