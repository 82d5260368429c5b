use burn::tensor::{DType, Int, Tensor, TensorData, activation::softmax};
use grove_backend::{Backend, to_dtype};
use serde::Serialize;

use super::BatchOptions;
use grove_models::{ModelError, Result, bert::BertForMaskedLm, largest};
use grove_text::{EncodedText, TextError, TextIds};

/// A candidate token for a masked position. Its JSON form has the keys of transformers' pipeline: `token`, `token_str`, `score`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Token id.
    #[serde(rename = "token")]
    pub id: u32,
    /// Decoded token, which can begin with a space at the beginning of a word.
    #[serde(rename = "token_str")]
    pub token: String,
    /// Probability, from 0 to 1.
    pub score: f32,
}

/// A masked position of a text, with its candidates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Filled {
    /// Index of the token in the text.
    pub position: usize,
    /// Candidates, most probable first.
    pub candidates: Vec<Candidate>,
}

/// Checks that each text has a mask token, before a model is loaded.
///
/// # Errors
/// As [`fill_mask`].
pub fn check_masks(batching: BatchOptions<'_>, texts: &[impl AsRef<str>]) -> Result<()> {
    masked(batching, texts).map(drop)
}

/// Returns the mask token and the encoded texts.
fn masked(batching: BatchOptions<'_>, texts: &[impl AsRef<str>]) -> Result<(u32, Vec<EncodedText>)> {
    let tokenizer = batching.tokenizer;
    let mask = tokenizer.mask_token().ok_or_else(|| TextError::Tokenizer {
        path: "the tokenizer".into(),
        reason: "it has neither [MASK] nor <mask>, so it is not the tokenizer of a masked language model".into(),
    })?;
    let name = tokenizer.id_to_token(mask).unwrap_or_default();
    let texts = batching.encode_all(texts, |batching, text| {
        let encoded = batching.encode(text.as_ref(), None)?;
        if !encoded.text.ids.contains(&mask) {
            let cut =
                if encoded.truncated { format!(" among its first {} tokens", batching.max_len) } else { String::new() };
            return Err(ModelError::NoMask { mask: name.clone(), cut });
        }
        Ok(encoded)
    })?;
    Ok((mask, texts))
}

/// Returns the `k` most likely tokens for each mask token of each text.
///
/// # Errors
/// A text is empty or has no mask token, possibly because of truncation ([`ModelError::InText`] if there are several
/// texts); the tokenizer has no mask token or is not the model's; or the model's results are not finite.
pub fn fill_mask<B: Backend>(
    model: &BertForMaskedLm<B>,
    batching: BatchOptions<'_>,
    texts: &[impl AsRef<str>],
    k: usize,
) -> Result<Vec<Vec<Filled>>> {
    let tokenizer = batching.tokenizer;
    let (mask, texts) = masked(batching, texts)?;
    batching.in_batches(&texts, |texts| {
        let batch = model.bert.batch(texts)?;
        let states = model.bert.forward(&batch, None);
        let [b, t, n] = states.dims();
        let mask_positions = |(i, text): (usize, &TextIds)| {
            let masked = text.ids.iter().enumerate().filter(|(_, id)| **id == mask);
            masked.map(|(position, _)| (i, position)).collect::<Vec<_>>()
        };
        let mask_positions: Vec<(usize, usize)> = texts.iter().enumerate().flat_map(mask_positions).collect();
        let rows: Vec<i64> = mask_positions.iter().map(|(i, position)| (i * t + position) as i64).collect();
        let count = rows.len();
        let rows = Tensor::<B, 1, Int>::from_data(TensorData::new(rows, [count]), &states.device());
        let logits = model.logits(states.reshape([b * t, n]).select(0, rows)); // [masked, vocab_size]
        let all = BatchOptions::finite(model, softmax(to_dtype(logits, DType::F32), 1))?;
        let mut filled = vec![vec![]; texts.len()];
        for ((i, position), scores) in mask_positions.into_iter().zip(all.chunks(model.bert.config.vocab_size)) {
            let candidate = |id: usize| {
                let token = tokenizer.decode(&[id as u32])?;
                Ok(Candidate { id: id as u32, token, score: scores[id] })
            };
            let candidates = largest(scores, k).into_iter().map(candidate).collect::<Result<_>>()?;
            filled[i].push(Filled { position, candidates });
        }
        Ok(filled)
    })
}
