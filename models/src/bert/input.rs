use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Backend, KeyRanges};
use grove_layers::AttentionMask;
use grove_text::TextIds;
use grove_tree::{Array, Tree};

use super::BertConfig;
use crate::{
    error::{ModelError, Result},
    texts::{check_text, longest},
};

/// A batch of sequences. Shorter sequences are padded at their ends, and a mask marks the padding. Padding does not
/// change the results of a sequence.
#[derive(Tree, Clone, Debug)]
pub struct TextBatch<B: Backend> {
    /// Token ids, `[b, t]`.
    pub ids: Array<B, 2, Int>,
    /// Segment of each token, 0 or 1, `[b, t]`.
    pub token_types: Array<B, 2, Int>,
    /// 1 for tokens, 0 for padding, `[b, t]`.
    pub mask: Array<B, 2, Int>,
    /// Position of each token, `[b, t]`; `None` if positions are consecutive. RoBERTa's positions skip padding tokens,
    /// even inside a text.
    pub positions: Option<Array<B, 2, Int>>,
    /// Length of each sequence, `[b]`; `None` in a batch of fixed size, where `mask` determines the lengths.
    #[tree(static)]
    pub lengths: Option<Vec<usize>>,
}

impl<B: Backend> TextBatch<B> {
    /// Creates a batch of sequences, padded to the longest.
    ///
    /// # Errors
    /// There are no texts, or a text is empty, is too long, or has a token or a token type that the model does not
    /// have.
    pub fn new(texts: &[TextIds], config: &BertConfig, device: &B::Device) -> Result<Self> {
        let lengths = texts.iter().map(|text| text.ids.len()).collect();
        Ok(Self { lengths: Some(lengths), ..Self::with_len(texts, longest(texts), config, device)? })
    }

    /// Creates a batch of sequences, padded to `t` positions. Their lengths are array values, so that a traced function
    /// of such batches is one program per size; see [`bucketed_len`].
    ///
    /// # Errors
    /// As [`new`](Self::new); also if a text has more than `t` tokens.
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
        // DistilBERT has no token types, but its tokenizers can produce them.
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

    /// Returns the number of sequences and the padded length, `[b, t]`.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.shape()
    }

    /// Returns the attention mask: each token attends to all tokens except padding.
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

/// Rounds a length up to one of a few values: multiples of 8 up to 64, then four values per power of two. Batches
/// padded to these lengths have few distinct shapes.
///
/// ```
/// # use grove_models::bert::bucketed_len;
/// assert_eq!([1, 64, 65, 100, 300].map(bucketed_len), [8, 64, 80, 112, 320]);
/// ```
pub fn bucketed_len(len: usize) -> usize {
    len.next_multiple_of((len.next_power_of_two() / 8).max(8))
}

fn check(text: &TextIds, config: &BertConfig) -> Result<()> {
    check_text(&text.ids, config.vocab_size, Some(config.positions()))?;
    if !text.token_types.is_empty() && text.token_types.len() != text.ids.len() {
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
