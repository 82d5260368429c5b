//! Checks of the texts of a batch.

use grove_text::TextIds;

use crate::error::{ModelError, Result};

/// Returns the length of the longest text, in tokens.
pub(crate) fn longest(texts: &[TextIds]) -> usize {
    texts.iter().map(|text| text.ids.len()).max().unwrap_or(0)
}

/// Checks that a text has at least one token, at most `most` tokens, and only tokens of the vocabulary.
pub(crate) fn check_text(ids: &[u32], vocab_size: usize, most: Option<usize>) -> Result<()> {
    let len = ids.len();
    match (most, ids.iter().find(|&&id| id as usize >= vocab_size)) {
        _ if len == 0 => Err(ModelError::EmptyText),
        (Some(most), _) if len > most => Err(ModelError::TextTooLong { len, most }),
        (_, Some(&id)) => Err(ModelError::TokenOutside { id, vocab_size }),
        _ => Ok(()),
    }
}
