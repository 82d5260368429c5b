//! Streams of tokens, in memory or in a file.

use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use grove_text::Tokenizer;

use super::DataError;
use super::token_file::{self, TokenFile};
use crate::DataIdentity;

/// Stream of tokens, in memory or memory-mapped from a file; or a part of one.
///
/// Clones and parts share the memory of the tokens.
///
/// ```
/// use grove_train::data::TokenStream;
///
/// let directory = tempfile::tempdir()?;
/// let path = directory.path().join("text.tokens");
/// TokenStream::write(&path, 0..1000, 50257)?;
/// let (train, held_out) = TokenStream::open(&path)?.split(0.1)?;
/// assert_eq!((train.len(), held_out.len()), (900, 100));
/// assert_eq!(held_out.read(0..3), [900, 901, 902]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TokenStream {
    tokens: Arc<Tokens>,
    part: Range<usize>,
}

enum Tokens {
    Memory(Vec<u32>),
    File(TokenFile),
}

impl Tokens {
    fn len(&self) -> usize {
        match self {
            Self::Memory(tokens) => tokens.len(),
            Self::File(file) => file.len(),
        }
    }
}

impl TokenStream {
    /// Creates a stream of tokens in memory.
    pub fn new(tokens: Vec<u32>) -> Self {
        Self::whole(Tokens::Memory(tokens))
    }

    /// Opens a file that [`write`](TokenStream::write) made. Tokens are read from the file on demand.
    ///
    /// The file must not be truncated while it is in use: the system would end the process with `SIGBUS`. `write` does
    /// not truncate: it replaces an old file by a new one.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a token file, is damaged, or is of a later version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DataError> {
        Ok(Self::whole(Tokens::File(TokenFile::open(path.as_ref())?)))
    }

    /// Writes a token file atomically and returns the number of tokens.
    ///
    /// A token takes two bytes if the vocabulary has at most 65536 tokens, and four otherwise. Tokens are written as
    /// the iterator returns them and need not fit in memory.
    ///
    /// - `vocabulary`: vocabulary size, greater than every token.
    ///
    /// # Errors
    /// If a token is not in the vocabulary, or the file cannot be written.
    pub fn write(
        path: impl AsRef<Path>,
        tokens: impl IntoIterator<Item = u32>,
        vocabulary: u32,
    ) -> Result<u64, DataError> {
        token_file::write(path.as_ref(), tokens.into_iter(), vocabulary)
    }

    /// Tokenizes documents and concatenates the tokens. Each document is followed by the token `end`, if given, unless
    /// the tokenizer has added it already.
    ///
    /// # Errors
    /// If the tokenizer rejects a document.
    pub fn encode(documents: &[impl AsRef<str>], tokenizer: &Tokenizer, end: Option<u32>) -> Result<Self, DataError> {
        let mut tokens = Vec::new();
        for document in documents {
            tokens.extend(tokenizer.encode(document.as_ref()).map_err(DataError::other)?);
            tokens.extend(end.filter(|end| tokens.last() != Some(end)));
        }
        Ok(Self::new(tokens))
    }

    /// Returns the number of tokens and a digest of them, for the settings of a run: a text tokenized differently is
    /// different data.
    ///
    /// The digest of a stream of more than 64 million tokens is that of as many tokens, in 64 blocks from its first to its
    /// last token: a start of a run on terabytes takes a second. Another text or tokenizer changes the blocks; a few
    /// tokens replaced between them are not noticed.
    pub fn identity(&self) -> String {
        let mut identity = DataIdentity::new();
        for start in sampled(self.len(), 1 << 20, 64) {
            identity.add_tokens(&self.read(start..self.len().min(start + (1 << 20))));
        }
        identity.describe(self.len(), "tokens")
    }

    fn whole(tokens: Tokens) -> Self {
        Self { part: 0..tokens.len(), tokens: Arc::new(tokens) }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.part.len()
    }

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.part.is_empty()
    }

    /// Returns a range of the tokens.
    ///
    /// # Panics
    /// If the range goes beyond the stream.
    pub fn read(&self, range: Range<usize>) -> Vec<u32> {
        let mut tokens = Vec::with_capacity(range.len().min(self.len()));
        self.extend(range, &mut tokens);
        tokens
    }

    /// Appends a range of the tokens.
    pub(super) fn extend(&self, range: Range<usize>, tokens: &mut Vec<u32>) {
        let range = self.within(range);
        match &*self.tokens {
            Tokens::Memory(all) => tokens.extend_from_slice(&all[range]),
            Tokens::File(file) => file.extend(range, tokens),
        }
    }

    /// Returns a part of the stream as a stream.
    ///
    /// # Panics
    /// If the range goes beyond the stream.
    pub fn part(&self, range: Range<usize>) -> Self {
        Self { tokens: self.tokens.clone(), part: self.within(range) }
    }

    /// Splits the stream into training tokens and held-out tokens, which are the last part.
    ///
    /// - `held_out`: fraction of the tokens held out, from 0 to 1; rounded to whole tokens.
    ///
    /// # Errors
    /// If `held_out` is not from 0 to 1.
    pub fn split(&self, held_out: f64) -> Result<(Self, Self), DataError> {
        if !(0.0..=1.0).contains(&held_out) {
            return Err(DataError::Fraction { fraction: held_out });
        }
        // Beyond 2^53 tokens the product could exceed the length of the stream.
        let held_out = ((self.len() as f64 * held_out).round() as usize).min(self.len());
        let at = self.len() - held_out;
        Ok((self.part(0..at), self.part(at..self.len())))
    }

    /// Returns the largest token, which must be less than the model's vocabulary size; `None` for an empty stream.
    /// Reads the whole stream.
    pub fn largest(&self) -> Option<u32> {
        const BLOCK: usize = 1 << 16;
        let mut block = Vec::new();
        let mut largest = None;
        for start in (0..self.len()).step_by(BLOCK) {
            block.clear();
            self.extend(start..self.len().min(start + BLOCK), &mut block);
            largest = largest.max(block.iter().copied().max());
        }
        largest
    }

    /// Converts positions in this part to positions in the whole stream.
    fn within(&self, range: Range<usize>) -> Range<usize> {
        let Range { start, end } = range;
        assert!(start <= end && end <= self.len(), "tokens {start}..{end} of a stream of {}", self.len());
        self.part.start + start..self.part.start + end
    }

    /// Describes the stream at the start of an error message.
    pub(super) fn description(&self) -> String {
        let whole = match &*self.tokens {
            Tokens::Memory(_) => "the text".into(),
            Tokens::File(file) => file.path().display().to_string(),
        };
        if self.part == (0..self.tokens.len()) {
            return whole;
        }
        format!("the part of {whole} from token {} to {}", self.part.start, self.part.end)
    }
}

/// Returns the starts of blocks of a stream: all blocks if they are at most `most`, else `most` blocks at equal distances.
fn sampled(len: usize, block: usize, most: usize) -> Vec<usize> {
    let last = len.saturating_sub(block);
    match len.div_ceil(block) {
        blocks if blocks <= most => (0..len).step_by(block).collect(),
        _ => (0..most).map(|i| (last as f64 * (i as f64 / (most - 1) as f64)) as usize).collect(),
    }
}

impl fmt::Debug for TokenStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenStream({}, {} tokens)", self.description(), self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_parts() {
        let stream = TokenStream::new((0..10).collect());
        let part = stream.part(2..8).part(1..4);
        assert_eq!(part.read(0..3), [3, 4, 5]);
        assert_eq!((part.largest(), part.part(1..1).largest()), (Some(5), None));
        assert_eq!(format!("{part:?}"), "TokenStream(the part of the text from token 3 to 6, 3 tokens)");
    }

    #[test]
    #[should_panic(expected = "tokens 1..4 of a stream of 3")]
    fn a_part_cannot_read_beyond_its_end() {
        TokenStream::new((0..10).collect()).part(2..5).read(1..4);
    }

    #[test]
    fn a_digest_reads_all_of_a_short_stream_and_blocks_of_a_long_one() {
        assert!(sampled(0, 10, 4).is_empty());
        assert_eq!(sampled(35, 10, 4), [0, 10, 20, 30]);
        assert_eq!(sampled(40, 10, 4), [0, 10, 20, 30]);
        assert_eq!(sampled(41, 10, 4), [0, 10, 20, 31]);
        assert_eq!(sampled(1 << 45, 1 << 20, 64).last(), Some(&((1 << 45) - (1 << 20))));
        let tokens: Vec<u32> = (0..1000).collect();
        let changed =
            |at: usize| TokenStream::new(tokens.iter().map(|&x| if x as usize == at { 0 } else { x }).collect());
        let whole = TokenStream::new(tokens.clone()).identity();
        assert!([1, 500, 999].iter().all(|&at| changed(at).identity() != whole));
        assert_eq!(changed(0).identity(), whole);
    }

    #[test]
    fn splits() {
        let stream = TokenStream::new((0..9).collect());
        for (fraction, lengths) in [(0.0, (9, 0)), (1.0, (0, 9)), (0.1, (8, 1)), (1e-9, (9, 0))] {
            let (train, held_out) = stream.split(fraction).expect("a fraction");
            assert_eq!((train.len(), held_out.len()), lengths);
        }
        for fraction in [-0.1, 1.5, f64::NAN] {
            let error = stream.split(fraction).expect_err("no fraction").to_string();
            assert!(error.contains("from 0 to 1"), "{error}");
        }
    }
}
