use grove_backend::Backend;
use grove_models::{CausalLm, Result};
use grove_text::Tokenizer;

use super::{GenerateOptions, generate};

/// Maximum number of tokens in a character: one per UTF-8 byte.
const LONGEST_CHARACTER: usize = 4;

/// Decodes a stream of tokens into text. Characters that span several tokens are held back until they are complete; so
/// is text that may begin a stop string. Returned text never changes: bytes that turn out not to be UTF-8 become U+FFFD
/// in place. The cost of a token does not depend on the length of the text.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    stops: &'a [String],
    /// Last token that is not a single byte, or the bytes at the beginning of the text. New tokens are decoded after
    /// it, since a word at the beginning of a text loses its leading space.
    anchor: Vec<u32>,
    /// Tokens whose text is not final yet.
    pending: Vec<u32>,
    /// The final characters at the beginning of the pending tokens' text, which are in `text` already.
    ahead: String,
    /// New text in whole characters, up to a stop string.
    text: String,
    /// Number of bytes of `text` that have been returned.
    shown: usize,
    stopped: bool,
}

impl<'a> TextStream<'a> {
    /// Creates a stream that ends before the first complete stop string, independently of the tokenisation.
    pub fn new(tokenizer: &'a Tokenizer, stops: &'a [String]) -> Self {
        Self::after(tokenizer, stops, &[])
    }

    /// Creates a stream whose text continues a prompt. Stop strings are searched for in the new text only.
    pub fn after(tokenizer: &'a Tokenizer, stops: &'a [String], prompt: &[u32]) -> Self {
        let (ahead, text) = (String::new(), String::new());
        let mut stream =
            Self { tokenizer, stops, anchor: vec![], pending: vec![], ahead, text, shown: 0, stopped: false };
        stream.anchor = prompt.iter().rev().copied().find(|&id| stream.is_anchor(id)).into_iter().collect();
        stream
    }

    /// Returns true for a token that is not a byte of a SentencePiece vocabulary. A decoder joins a run of bytes, so
    /// that a byte before new ones would change their text.
    fn is_anchor(&self, id: u32) -> bool {
        let token = self.tokenizer.id_to_token(id);
        token.is_some_and(|token| !(token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')))
    }

    /// Decodes the first `count` pending tokens.
    fn decoded(&self, count: usize) -> Result<String> {
        let before = self.tokenizer.decode(&self.anchor)?;
        let text = self.tokenizer.decode(&[&self.anchor, &self.pending[..count]].concat())?;
        match text.strip_prefix(&before) {
            Some(new) => Ok(new.to_owned()),
            None => Ok(self.tokenizer.decode(&self.pending[..count])?),
        }
    }

    /// Appends the text of the first `count` pending tokens.
    fn accept(&mut self, count: usize, decoded: &str) {
        self.text.push_str(decoded.strip_prefix(&*self.ahead).unwrap_or(decoded));
        self.ahead.clear();
        let last = self.pending[..count].iter().rev().copied().find(|&id| self.is_anchor(id));
        let accepted = self.pending.drain(..count);
        match last {
            Some(last) => self.anchor = vec![last],
            None if self.anchor.is_empty() => self.anchor.extend(accepted),
            None => {}
        }
    }

    /// Adds a token and returns the text that has become final, possibly empty.
    ///
    /// # Errors
    /// The tokenizer cannot decode the token.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.stopped {
            return Ok(String::new());
        }
        self.pending.push(id);
        let decoded = self.decoded(self.pending.len())?;
        // Trailing replacement characters stand for a character that is not complete yet.
        let whole = decoded.trim_end_matches('\u{fffd}');
        if whole.len() == decoded.len() {
            self.accept(self.pending.len(), &decoded);
        } else if self.pending.len() >= 2 * LONGEST_CHARACTER {
            // Bytes that are further back than the longest character cannot be completed any more.
            let count = self.pending.len() - (LONGEST_CHARACTER - 1);
            let decoded = self.decoded(count)?;
            self.accept(count, &decoded);
        } else if let Some(new) = whole.strip_prefix(&*self.ahead) {
            self.text.push_str(new);
            self.ahead.push_str(new);
        }
        Ok(self.release(false))
    }

    /// Returns the remaining text.
    ///
    /// # Errors
    /// The tokenizer cannot decode the tokens.
    pub fn finish(&mut self) -> Result<String> {
        if !self.stopped {
            let decoded = self.decoded(self.pending.len())?;
            self.accept(self.pending.len(), &decoded);
        }
        Ok(self.release(true))
    }

    /// Returns true if a stop string has occurred.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Returns all text that has been returned so far.
    pub fn text(&self) -> &str {
        &self.text[..self.shown]
    }

    /// Returns the text that can no longer be part of a stop string.
    fn release(&mut self, all: bool) -> String {
        // A stop string that is complete now begins in text that was held back.
        let new = &self.text[self.shown..];
        let place = |stop: &String| new.find(stop).map(|first| (first + stop.len(), first));
        let complete = self.stops.iter().filter(|stop| !stop.is_empty()).filter_map(place).min();
        let end = if let Some((_, first)) = complete {
            self.stopped = true;
            first
        } else if all {
            new.len()
        } else {
            new.len() - self.held_back(new)
        };
        let released = new[..end].to_owned();
        self.shown += end;
        if self.stopped {
            self.text.truncate(self.shown);
        }
        released
    }

    /// Returns the length of the longest suffix of a text that begins a stop string.
    fn held_back(&self, text: &str) -> usize {
        let begins = |stop: &String| {
            (1..stop.len()).rev().find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n])).unwrap_or(0)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

/// Continues a text, and returns the text with its continuation. A text that leaves no room in the model's context is
/// truncated at its end. A text without tokens is returned unchanged.
///
/// # Errors
/// As [`generate`]; the tokenizer cannot encode the text or decode the tokens.
pub fn complete_text<B: Backend, M: CausalLm<B>>(
    model: &M,
    tokenizer: &Tokenizer,
    text: &str,
    options: &GenerateOptions,
) -> Result<String> {
    let mut ids = tokenizer.encode(text)?;
    ids.truncate(model.context().unwrap_or(usize::MAX).saturating_sub(1));
    if ids.is_empty() {
        return Ok(text.to_owned());
    }
    let rows = generate(model, std::slice::from_ref(&ids), options, |_, _| true)?;
    ids.extend(rows.into_iter().flat_map(|row| row.ids));
    Ok(tokenizer.decode(&ids)?)
}
