use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_text::TextIds;
use grove_tree::{Array, Tree};

use super::BaseDecoder;
use crate::{
    error::{ModelError, Result},
    texts::check_text,
};

/// A batch of texts for a decoder, padded at their ends. No token attends to the padding after it.
#[derive(Tree, Clone, Debug)]
pub struct DecoderTexts<B: Backend> {
    /// Token ids, `[b, t]`.
    pub ids: Array<B, 2, Int>,
    /// Token of each text whose state is classified, as `row * t + column`, `[b]`.
    pub last: Array<B, 1, Int>,
    /// Length of each text, `[b]`; `None` in a batch of fixed size.
    #[tree(static)]
    pub lengths: Option<Vec<usize>>,
}

impl<B: Backend> DecoderTexts<B> {
    /// Creates a batch for a decoder, padded to `t` positions. The classified token of a text is the last one that is not
    /// `pad`, as in transformers.
    ///
    /// # Errors
    /// There are no texts, or a text is empty, is too long, or has a token outside the vocabulary.
    pub(super) fn new<M: BaseDecoder<B>>(decoder: &M, texts: &[TextIds], t: usize, pad: Option<u32>) -> Result<Self> {
        if texts.is_empty() {
            return Err(ModelError::EmptyText);
        }
        let (mut ids, mut last) = (Vec::with_capacity(texts.len() * t), vec![]);
        for (row, TextIds { ids: text, .. }) in texts.iter().enumerate() {
            check_text(text, decoder.vocab_size(), decoder.position_limit())?;
            let column = text.iter().rposition(|&id| Some(id) != pad).unwrap_or(0);
            last.push((row * t + column) as i64);
            ids.extend(text.iter().map(|&id| i64::from(id)));
            ids.resize((row + 1) * t, 0);
        }
        let (b, device) = (texts.len(), decoder.device());
        Ok(Self {
            ids: Array::new(Tensor::from_data(TensorData::new(ids, [b, t]), &device)),
            last: Array::new(Tensor::from_data(TensorData::new(last, [b]), &device)),
            lengths: Some(texts.iter().map(|text| text.ids.len()).collect()),
        })
    }

    /// Returns the number of texts and the padded length, `[b, t]`.
    pub fn dims(&self) -> [usize; 2] {
        self.ids.shape()
    }
}
