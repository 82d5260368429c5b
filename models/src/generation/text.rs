use grove_backend::Backend;

use super::{CausalLm, GenerateOptions, generate};
use crate::{Tokenizer, error::Result};

/// Tokens over which a character may be spread: one for each of its bytes.
const LONGEST_CHARACTER: usize = 4;

/// Decodes a stream of tokens into text. Characters that span several tokens are held back until they are complete, and
/// so is text that may begin a stop string.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    stops: &'a [String],
    /// The last tokens of the prompt, then the new ones: what a token says may depend on the one before it.
    ids: Vec<u32>,
    /// Bytes of the text that stand for the prompt's.
    before: usize,
    /// The decoded text, in whole characters, up to a stop string.
    text: String,
    /// Number of bytes of `text` that have been returned.
    shown: usize,
    stopped: bool,
}

impl<'a> TextStream<'a> {
    /// A stream that ends before the stop string that is complete first, however the text is cut into tokens.
    pub fn new(tokenizer: &'a Tokenizer, stops: &'a [String]) -> Self {
        Self::after(tokenizer, stops, &[])
    }

    /// The same for a text that continues a prompt.
    pub fn after(tokenizer: &'a Tokenizer, stops: &'a [String], prompt: &[u32]) -> Self {
        // As many of the last tokens as make whole characters, if few do.
        let whole = |count: &usize| {
            let text = tokenizer.decode(&prompt[prompt.len() - count..]).ok()?;
            (!text.ends_with('\u{fffd}')).then_some((*count, text.len()))
        };
        let (count, before) =
            (1..=prompt.len().min(LONGEST_CHARACTER)).find_map(|count| whole(&count)).unwrap_or((0, 0));
        let (ids, text) = (prompt[prompt.len() - count..].to_vec(), String::new());
        Self { tokenizer, stops, ids, before, text, shown: 0, stopped: false }
    }

    /// Decodes the new tokens.
    fn decoded(&self) -> Result<String> {
        let mut text = self.tokenizer.decode(&self.ids)?;
        Ok(if text.is_char_boundary(self.before) { text.split_off(self.before) } else { String::new() })
    }

    /// Adds a token and returns the text that has become certain, possibly none.
    ///
    /// # Errors
    /// The tokenizer cannot decode the token.
    pub fn push(&mut self, id: u32) -> Result<String> {
        if self.stopped {
            return Ok(String::new());
        }
        self.ids.push(id);
        let decoded = self.decoded()?;
        // The replacement character at the end stands for the beginning of a character that is not whole yet.
        let whole = decoded.trim_end_matches('\u{fffd}').len();
        if whole > self.text.len() && decoded.is_char_boundary(self.text.len()) {
            self.text = decoded[..whole].to_owned();
        }
        Ok(self.release(false))
    }

    /// The rest of the text.
    ///
    /// # Errors
    /// The tokenizer cannot decode the tokens.
    pub fn finish(&mut self) -> Result<String> {
        if !self.stopped {
            self.text = self.decoded()?;
        }
        Ok(self.release(true))
    }

    /// Returns true if a stop string has occurred.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// All text that has been returned.
    pub fn text(&self) -> &str {
        &self.text[..self.shown]
    }

    /// Returns the text that can no longer be part of a stop string.
    fn release(&mut self, all: bool) -> String {
        let place = |stop: &String| self.text.find(stop).map(|first| (first + stop.len(), first));
        let complete = self.stops.iter().filter(|stop| !stop.is_empty()).filter_map(place).min();
        let end = if let Some((_, first)) = complete {
            self.text.truncate(first);
            self.stopped = true;
            first
        } else if all {
            self.text.len()
        } else {
            self.text.len() - self.held_back()
        };
        let shown = self.shown;
        self.shown = end.max(shown);
        self.text.get(shown..self.shown).unwrap_or_default().to_owned()
    }

    /// Length of the longest suffix of the text that begins a stop string.
    fn held_back(&self) -> usize {
        let begins = |stop: &String| {
            (1..stop.len()).rev().find(|&n| stop.is_char_boundary(n) && self.text.ends_with(&stop[..n])).unwrap_or(0)
        };
        self.stops.iter().map(begins).max().unwrap_or(0)
    }
}

/// Continues a text, and returns it with its continuation. A text that leaves no room in the model's context is cut at its
/// end; one without tokens stays as it is.
///
/// # Errors
/// As [`generate`], or the tokenizer refuses the text or the tokens.
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
    tokenizer.decode(&ids)
}
