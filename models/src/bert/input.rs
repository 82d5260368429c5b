use burn::tensor::{Int, Tensor, TensorData, backend::AutodiffBackend};
use grove_backend::{Backend, KeyRanges};
use grove_layers::AttentionMask;
use grove_tree::{Array, Tree};

use super::BertConfig;
use crate::error::{ModelError, Result};

/// Token ids of a text or of a pair of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextIds {
    /// Tokens, those that mark beginning and end among them.
    pub ids: Vec<u32>,
    /// Segment of each token, 0 or 1, for a pair of texts; may be empty for a single text.
    pub token_types: Vec<u32>,
}

impl From<Vec<u32>> for TextIds {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, token_types: vec![] }
    }
}

/// A batch of sequences of different lengths. Shorter ones are padded at their ends, and a mask marks the padding.
/// Padding does not change the results of a sequence.
#[derive(Tree, Clone, Debug)]
pub struct TextBatch<B: Backend> {
    /// Tokens, `[b, t]`.
    pub ids: Array<B, 2, Int>,
    /// Segment of each token, 0 or 1, `[b, t]`.
    pub token_types: Array<B, 2, Int>,
    /// 1 where there is a token, 0 where there is padding, `[b, t]`.
    pub mask: Array<B, 2, Int>,
    /// Position of each token, `[b, t]`; `None` where they are consecutive. RoBERTa does not count a padding token, also
    /// where it is part of a text.
    pub positions: Option<Array<B, 2, Int>>,
    /// Tokens of each text. `None` in a batch of a given size, where `mask` alone shows them.
    #[tree(static)]
    pub lengths: Option<Vec<usize>>,
}

impl<B: Backend> TextBatch<B> {
    /// Makes a batch of sequences, padded to the longest.
    ///
    /// # Errors
    /// There are no texts, or one is empty, too long, or holds a token or a type that the model does not have.
    pub fn new(texts: &[TextIds], config: &BertConfig, device: &B::Device) -> Result<Self> {
        let lengths = texts.iter().map(|text| text.ids.len()).collect();
        Ok(Self { lengths: Some(lengths), ..Self::with_len(texts, longest(texts), config, device)? })
    }

    /// Makes a batch of sequences, padded to `t` positions. Their lengths are values of an array, so that a traced function of
    /// such batches is one program for all of the same size; see [`bucketed_len`].
    ///
    /// # Errors
    /// As [`new`](Self::new), where a text of more than `t` tokens is too long.
    pub fn with_len(texts: &[TextIds], t: usize, config: &BertConfig, device: &B::Device) -> Result<Self> {
        if texts.is_empty() {
            return Err(ModelError::EmptyText);
        }
        let filled = |row: &dyn Fn(&TextIds) -> Vec<i64>, padding: i64| {
            let mut all = Vec::with_capacity(texts.len() * t);
            for (i, text) in texts.iter().enumerate() {
                all.extend(row(text));
                all.resize((i + 1) * t, padding);
            }
            Array::new(Tensor::from_data(TensorData::new(all, [texts.len(), t]), device))
        };
        for text in texts {
            check(text, config)?;
            if text.ids.len() > t {
                return Err(ModelError::TextTooLong { len: text.ids.len(), most: t });
            }
        }
        let numbers = |ids: &[u32]| ids.iter().map(|&id| i64::from(id)).collect();
        // DistilBERT has no token types, and its tokenizers may still give them.
        let types = |text: &TextIds| if config.type_vocab_size == 0 { vec![] } else { numbers(&text.token_types) };
        let pad = config.pad_token_id;
        let inner_padding = config.model_type.is_roberta() && texts.iter().any(|text| text.ids.contains(&pad));
        let positions = |text: &TextIds| {
            let mut last = i64::from(pad);
            let position = |&id: &u32| {
                if id == pad {
                    return i64::from(pad);
                }
                last += 1;
                last
            };
            text.ids.iter().map(position).collect()
        };
        Ok(Self {
            ids: filled(&|text| numbers(&text.ids), i64::from(pad)),
            token_types: filled(&types, 0),
            mask: filled(&|text| vec![1; text.ids.len()], 0),
            positions: inner_padding.then(|| filled(&positions, i64::from(pad))),
            lengths: None,
        })
    }

    /// Number of texts, and of tokens that the longest has.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.shape()
    }

    /// Attention mask: each token attends to all tokens but padding.
    pub(super) fn attention_mask(&self) -> AttentionMask<B> {
        match &self.lengths {
            Some(lengths) => AttentionMask::to_lengths(lengths, self.dims()[1], &self.mask.val().device()),
            None => {
                let lengths = self.mask.val().sum_dim(1).reshape([self.dims()[0]]);
                AttentionMask::Ranges(KeyRanges { lengths: Some(lengths), ..KeyRanges::default() })
            }
        }
    }
}

impl<A: Backend + AutodiffBackend> TextBatch<A>
where
    A::InnerBackend: Backend,
{
    /// The texts on the differentiating backend, as a loss takes them.
    pub fn from_inner(texts: TextBatch<A::InnerBackend>) -> Self {
        let lift = |x: Array<A::InnerBackend, 2, Int>| Array::new(Tensor::from_inner(x.val()));
        Self {
            ids: lift(texts.ids),
            token_types: lift(texts.token_types),
            mask: lift(texts.mask),
            positions: texts.positions.map(lift),
            lengths: texts.lengths,
        }
    }
}

/// The number of tokens of the longest text.
pub(super) fn longest(texts: &[TextIds]) -> usize {
    texts.iter().map(|text| text.ids.len()).max().unwrap_or(0)
}

/// The least of a few lengths that is enough: multiples of 8 up to 64, and then four between a power of two and the next.
/// Batches that are padded to them have few shapes.
///
/// ```
/// # use grove_models::bert::bucketed_len;
/// assert_eq!([1, 64, 65, 100, 300].map(bucketed_len), [8, 64, 80, 112, 320]);
/// ```
pub fn bucketed_len(len: usize) -> usize {
    len.next_multiple_of((len.next_power_of_two() / 8).max(8))
}

fn check(text: &TextIds, config: &BertConfig) -> Result<()> {
    let len = text.ids.len();
    if len == 0 {
        return Err(ModelError::EmptyText);
    }
    if len > config.positions() {
        return Err(ModelError::TextTooLong { len, most: config.positions() });
    }
    if let Some(&id) = text.ids.iter().find(|&&id| id as usize >= config.vocab_size) {
        return Err(ModelError::TokenOutside { id, vocab_size: config.vocab_size });
    }
    if !text.token_types.is_empty() && text.token_types.len() != len {
        let value = text.token_types.len().to_string();
        return Err(ModelError::Option { option: "the number of token types", value, range: "that of the tokens" });
    }
    if config.type_vocab_size == 0 {
        return Ok(());
    }
    let types = config.type_vocab_size;
    if let Some(kind) = text.token_types.iter().find(|&&kind| kind as usize >= types) {
        let range = if types == 1 { "0, which is all that this model knows" } else { "a type that the model knows" };
        return Err(ModelError::Option { option: "a token type", value: kind.to_string(), range });
    }
    Ok(())
}
