//! Texts with masked tokens.

use grove::{
    layers::loss::cross_entropy,
    models::{
        Tokenizer,
        bert::{BertConfig, BertForMaskedLm, Masking, TextBatch, TextIds},
    },
    prelude::*,
    tensor::TensorData,
};

use crate::{Exit, failure};

/// Special tokens, by the names that families of models have for them.
const SPECIAL: [&str; 10] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"];

fn special_tokens(tokenizer: &Tokenizer) -> Vec<u32> {
    SPECIAL.iter().filter_map(|name| tokenizer.token_to_id(name)).collect()
}

/// The lines of documents in which something can be masked, as the model reads them: each, or where it is too long each part
/// of it, with the tokens that mark beginning and end.
pub fn texts(
    documents: &[String],
    tokenizer: &Tokenizer,
    config: &BertConfig,
    context: usize,
) -> Result<Vec<TextIds>, Exit> {
    let mut texts = vec![];
    for line in documents.iter().flat_map(|document| document.lines()).filter(|line| !line.trim().is_empty()) {
        let windows = tokenizer.encode_windows(line, None, context, 0).map_err(failure)?;
        texts.extend(windows.into_iter().map(|window| window.text));
    }
    // Of signs that the tokenizer does not know, for instance.
    let special = special_tokens(tokenizer);
    texts.retain(|text: &TextIds| text.ids.iter().any(|id| !special.contains(id)));
    match texts.iter().flat_map(|text| &text.ids).max() {
        None => Err(failure("the data has no text of which a token can be masked")),
        Some(&id) if id as usize >= config.vocab_size => Err(failure(format!(
            "the tokenizer gives token {id}, and the model has {}: it belongs to another model",
            config.vocab_size
        ))),
        _ => Ok(texts),
    }
}

/// Masking of tokens with the model's special tokens.
pub fn masking(tokenizer: &Tokenizer, config: &BertConfig, rate: f32) -> Result<Masking, Exit> {
    let mask = tokenizer.mask_token().ok_or_else(|| failure("the tokenizer has neither [MASK] nor <mask>"))?;
    Ok(Masking { rate, ..Masking::new(mask, special_tokens(tokenizer), config.vocab_size) })
}

/// A batch of texts with masked tokens, where those stand, and what they were.
pub struct MaskedTexts<B: Backend> {
    pub texts: TextBatch<B>,
    /// `[m]`, each `row * t + column`.
    pub positions: Tensor<B, 1, Int>,
    /// `[m]`.
    pub tokens: Tensor<B, 1, Int>,
}

impl<B: Backend> MaskedTexts<B> {
    /// Masks tokens of texts; `None` where they have no token that can be.
    pub fn new(
        model: &BertForMaskedLm<B>,
        texts: &[TextIds],
        masking: &Masking,
        key: Key,
    ) -> Result<Option<Self>, Exit> {
        let longest = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
        let (mut corrupted, mut positions, mut tokens) = (vec![], vec![], vec![]);
        for (i, text) in texts.iter().enumerate() {
            let (ids, labels) = masking.apply(&text.ids, key.fold_in(i as u32));
            for (j, &label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
                positions.push((i * longest + j) as i64);
                tokens.push(label);
            }
            corrupted.push(TextIds { ids, token_types: text.token_types.clone() });
        }
        if tokens.is_empty() {
            return Ok(None);
        }
        let device = model.head.bias.val().device();
        let tensor = |values: Vec<i64>| {
            let len = values.len();
            Tensor::from_data(TensorData::new(values, [len]), &device)
        };
        let texts = model.bert.batch(&corrupted).map_err(failure)?;
        Ok(Some(Self { texts, positions: tensor(positions), tokens: tensor(tokens) }))
    }
}

/// Loss and accuracy on masked tokens.
pub struct Score {
    pub loss: f64,
    pub accuracy: f64,
    pub tokens: usize,
}

/// Masks tokens, always the same ones, and counts how many the model restores. It masks as many as the published models
/// were trained with, whatever this one is trained with.
pub fn score<B: Backend>(
    model: &BertForMaskedLm<B>,
    texts: &[TextIds],
    masking: &Masking,
    batch_size: usize,
) -> Result<Score, Exit> {
    let masking = &Masking::new(masking.mask, masking.special.clone(), masking.vocab_size);
    let mut order: Vec<&TextIds> = texts.iter().collect();
    // Of similar length together, for less padding.
    order.sort_by_key(|text| text.ids.len());
    let (mut loss, mut right, mut tokens) = (0.0, 0.0, 0);
    for (i, batch) in order.chunks(batch_size).enumerate() {
        let batch: Vec<TextIds> = batch.iter().map(|&text| text.clone()).collect();
        let Some(masked) = MaskedTexts::new(model, &batch, masking, Key::new(0).fold_in(i as u32))? else { continue };
        let count = masked.tokens.dims()[0];
        let states = model.bert.forward(&masked.texts, None);
        let [b, t, n] = states.dims();
        let logits = model.logits(states.reshape([b * t, n]).select(0, masked.positions)); // [m, vocab_size]
        let likeliest = logits.clone().argmax(1).reshape([count]);
        right += number(likeliest.equal(masked.tokens.clone()).int().sum().float());
        loss += number(cross_entropy(logits, masked.tokens)) * count as f64;
        tokens += count;
    }
    let all = tokens.max(1) as f64;
    Ok(Score { loss: loss / all, accuracy: right / all, tokens })
}

fn number<B: Backend>(x: Tensor<B, 1>) -> f64 {
    x.into_data().iter::<f64>().next().unwrap_or(f64::NAN)
}
