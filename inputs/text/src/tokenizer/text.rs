//! Encoding of texts and pairs of texts for encoders: with special tokens, truncated or split into windows.

use grove_files::note_once;
use std::ops::Range;
use tokenizers::{
    Encoding, PostProcessor, PostProcessorWrapper, TruncationDirection, TruncationParams, TruncationStrategy,
    truncate_encodings,
};

use super::Tokenizer;
use crate::error::{Result, TextError};

/// The text of a pair to truncate if the pair is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Truncation {
    /// The longer text.
    #[default]
    LongestFirst,
    /// The first text.
    OnlyFirst,
    /// The second text.
    OnlySecond,
}

/// Token ids of a text or a pair of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextIds {
    /// Tokens, including special tokens.
    pub ids: Vec<u32>,
    /// Segment of each token, 0 or 1, for a pair of texts; may be empty for a single text.
    pub token_types: Vec<u32>,
}

impl From<Vec<u32>> for TextIds {
    fn from(ids: Vec<u32>) -> Self {
        Self { ids, token_types: vec![] }
    }
}

/// An encoded text or pair, with the positions of its tokens in the text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedText {
    /// Tokens and token types; no types if the tokenizer has none.
    pub text: TextIds,
    /// Byte range of each token in its text; empty for added tokens.
    pub offsets: Vec<Range<usize>>,
    /// Text of each token, 0 or 1; `None` for added tokens.
    pub sources: Vec<Option<usize>>,
    /// Index of each token's word in its text; `None` for added tokens or if the tokenizer has no words.
    pub words: Vec<Option<u32>>,
    /// True if the text was truncated.
    pub truncated: bool,
}

impl EncodedText {
    fn new(encoding: &Encoding, truncated: bool, types: bool) -> Self {
        let special = encoding.get_special_tokens_mask();
        let sources = encoding.get_sequence_ids().into_iter().zip(special);
        Self {
            text: TextIds {
                ids: encoding.get_ids().to_vec(),
                token_types: if types { encoding.get_type_ids().to_vec() } else { vec![] },
            },
            offsets: encoding.get_offsets().iter().map(|&(from, to)| from..to).collect(),
            sources: sources.map(|(source, &special)| source.filter(|_| special == 0)).collect(),
            words: encoding.get_word_ids().to_vec(),
            truncated,
        }
    }
}

impl Tokenizer {
    /// Encodes a text or a pair with special tokens, truncated to `max_len` tokens.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text, or `max_len` has no room for it beside the special tokens.
    pub fn encode_text(
        &self,
        text: &str,
        pair: Option<&str>,
        max_len: Option<usize>,
        truncation: Truncation,
    ) -> Result<EncodedText> {
        let side = if self.truncates_left { TruncationDirection::Left } else { TruncationDirection::Right };
        let windows = self.windows(text, pair, max_len.unwrap_or(usize::MAX), 0, truncation, side)?;
        let truncated = windows.len() > 1;
        Ok(EncodedText::new(&windows[0], truncated, self.token_types))
    }

    /// Encodes a text for a model of `vocab_size` tokens, with the special tokens of the tokenizer's post-processor,
    /// truncated to `max_len`.
    ///
    /// # Errors
    /// The tokenizer cannot encode the text or produces no tokens, or a token is outside the model's vocabulary.
    pub fn encode_for(&self, text: &str, max_len: usize, vocab_size: usize) -> Result<TextIds> {
        let mut ids = self.encode(text)?;
        ids.truncate(max_len);
        if ids.is_empty() {
            return Err(TextError::NoTokens);
        }
        self.check_ids(&ids, vocab_size)?;
        Ok(ids.into())
    }

    /// Checks that a model of `vocab_size` tokens has all of these tokens.
    ///
    /// # Errors
    /// [`TextError::OtherTokenizer`], with the largest token and the tokenizer's file.
    pub fn check_ids<'a>(&self, ids: impl IntoIterator<Item = &'a u32>, vocab_size: usize) -> Result<()> {
        match ids.into_iter().max() {
            Some(&id) if id as usize >= vocab_size => {
                Err(TextError::OtherTokenizer { tokenizer: self.place.clone(), id, vocab_size })
            }
            _ => Ok(()),
        }
    }

    /// Encodes a long text in windows of at most `max_len` tokens. Each window begins with the last `stride` tokens of
    /// the previous one. Of a pair, such as a question and a long text, the second text is split, and every window
    /// contains the first.
    ///
    /// As in transformers, a window has at most [`model_max_length`](Self::model_max_length) tokens. If that is shorter, a
    /// note on standard error says so once, and `stride` is at most a quarter of it, or half for a pair.
    ///
    /// # Errors
    /// As [`encode_text`](Self::encode_text); also if `stride` is so large that the windows would not advance.
    pub fn encode_windows(
        &self,
        text: &str,
        pair: Option<&str>,
        max_len: usize,
        stride: usize,
    ) -> Result<Vec<EncodedText>> {
        let which = if pair.is_some() { Truncation::OnlySecond } else { Truncation::OnlyFirst };
        let limit = self.model_max_length().filter(|limit| *limit < max_len);
        let (max_len, stride) = match limit {
            Some(limit) => (limit, stride.min(limit / if pair.is_some() { 2 } else { 4 })),
            None => (max_len, stride),
        };
        let windows = self.windows(text, pair, max_len, stride, which, TruncationDirection::Right)?;
        let several = windows.len() > 1;
        if let (Some(limit), true) = (limit, several) {
            let place = self.place.display();
            note_once(&format!(
                "{place}: windows of long texts have {limit} tokens, the model_max_length of tokenizer_config.json"
            ));
        }
        Ok(windows.iter().map(|window| EncodedText::new(window, several, self.token_types)).collect())
    }

    /// Encodes a text or a pair. Returns at least one window.
    fn windows(
        &self,
        text: &str,
        pair: Option<&str>,
        max_len: usize,
        stride: usize,
        truncation: Truncation,
        direction: TruncationDirection,
    ) -> Result<Vec<Encoding>> {
        let tokens = |text: &str| self.run(|inner| inner.encode(text, false));
        let (first, mut second) = (tokens(text)?, pair.map(tokens).transpose()?);
        if let Some(second) = &mut second {
            // The post-processor sets the token types of the first window only.
            second.set_type_ids(vec![1; second.len()]);
        }
        let added = self.inner.get_post_processor().map_or(0, |processor| processor.added_tokens(pair.is_some()));
        let room = max_len.saturating_sub(added);
        let total = first.len() + second.as_ref().map_or(0, Encoding::len);
        let (first, second) = if total <= room {
            (first, second)
        } else {
            let fixed = match truncation {
                Truncation::LongestFirst => 0,
                Truncation::OnlyFirst => second.as_ref().map_or(0, Encoding::len),
                Truncation::OnlySecond => first.len(),
            };
            // The remaining length must exceed the overlap of windows, or they would not advance.
            if room <= fixed + stride {
                let value = max_len.to_string();
                let range = "greater than the sum of the other text, the added tokens and the overlap";
                return Err(TextError::Option { option: "the longest text", value, range });
            }
            let strategy = match truncation {
                Truncation::LongestFirst => TruncationStrategy::LongestFirst,
                Truncation::OnlyFirst => TruncationStrategy::OnlyFirst,
                Truncation::OnlySecond => TruncationStrategy::OnlySecond,
            };
            let params = TruncationParams { max_length: room, strategy, stride, direction };
            self.run(|_| truncate_encodings(first, second, &params))?
        };
        let mut whole = self.run(|inner| match inner.get_post_processor() {
            Some(processor) => untrimmed(processor).process(first, second, true),
            None => inner.post_process(first, second, true),
        })?;
        let mut windows = vec![];
        windows.extend(whole.take_overflowing());
        windows.insert(0, whole);
        Ok(windows)
    }
}

/// Returns a post-processor that does not trim offsets. Encoding a text has trimmed spaces off them already; trimming
/// them twice would remove a letter for each space.
fn untrimmed(processor: &PostProcessorWrapper) -> PostProcessorWrapper {
    match processor.clone() {
        PostProcessorWrapper::Roberta(processor) => processor.trim_offsets(false).into(),
        PostProcessorWrapper::ByteLevel(processor) => processor.trim_offsets(false).into(),
        PostProcessorWrapper::Sequence(mut steps) => {
            steps.as_mut().iter_mut().for_each(|step| *step = untrimmed(step));
            steps.into()
        }
        other => other,
    }
}
