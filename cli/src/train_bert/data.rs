//! From files to texts with masked tokens.

use grove::{
    models::{
        Tokenizer,
        bert::{BertConfig, BertForMaskedLm, Masking, TextBatch, TextIds},
    },
    prelude::*,
    tensor::TensorData,
};

use crate::{Exit, failure};

/// The lines of documents in which something can be masked, as the model reads them: each, or where it is too long each part of it, with the tokens that
/// mark beginning and end.
pub fn texts(
    documents: &[String],
    tokenizer: &Tokenizer,
    config: &BertConfig,
    context: usize,
    masking: &Masking,
) -> Result<Vec<TextIds>, Exit> {
    let mut texts = vec![];
    for line in documents.iter().flat_map(|document| document.lines()).filter(|line| !line.trim().is_empty()) {
        let windows = tokenizer.encode_windows(line, None, context, 0).map_err(failure)?;
        texts.extend(windows.into_iter().map(|window| window.text));
    }
    // Of signs that the tokenizer does not know, for instance.
    texts.retain(|text: &TextIds| text.ids.iter().any(|id| !masking.special.contains(id)));
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
    let names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<s>", "</s>", "<pad>", "<unk>", "<mask>"];
    let special = names.iter().filter_map(|name| tokenizer.token_to_id(name)).collect();
    Ok(Masking { rate, ..Masking::new(mask, special, config.vocab_size) })
}

/// A batch of texts with masked tokens, where those stand, and what they were.
pub struct Masked<B: Backend> {
    pub texts: TextBatch<B>,
    /// `[m]`, each `row * t + column`.
    pub positions: Tensor<B, 1, Int>,
    /// `[m]`.
    pub tokens: Tensor<B, 1, Int>,
}

/// Masks tokens of texts; `None` where they have no token that can be.
pub fn mask<B: Backend>(
    model: &BertForMaskedLm<B>,
    texts: &[TextIds],
    masking: &Masking,
    key: Key,
    device: &B::Device,
) -> Result<Option<Masked<B>>, Exit> {
    let longest = texts.iter().map(|text| text.ids.len()).max().unwrap_or(0);
    let (mut spoilt, mut positions, mut tokens) = (vec![], vec![], vec![]);
    for (i, text) in texts.iter().enumerate() {
        let (ids, labels) = masking.apply(&text.ids, key.fold_in(i as u32));
        for (j, &label) in labels.iter().enumerate().filter(|(_, label)| **label >= 0) {
            positions.push((i * longest + j) as i64);
            tokens.push(label);
        }
        spoilt.push(TextIds { ids, token_types: text.token_types.clone() });
    }
    if tokens.is_empty() {
        return Ok(None);
    }
    let tensor = |values: Vec<i64>| {
        let len = values.len();
        Tensor::from_data(TensorData::new(values, [len]), device)
    };
    let texts = model.bert.batch(&spoilt).map_err(failure)?;
    Ok(Some(Masked { texts, positions: tensor(positions), tokens: tensor(tokens) }))
}
