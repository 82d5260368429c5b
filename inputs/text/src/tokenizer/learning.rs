//! Training of tokenizers.

use std::path::Path;

use tokenizers::{
    AddedToken, Tokenizer as HfTokenizer,
    models::{
        TrainerWrapper,
        bpe::{BPE, BpeTrainer},
    },
    pre_tokenizers::byte_level::ByteLevel,
};

use super::{END_OF_TEXT, Tokenizer, byte_level, failed, wordpiece};
use crate::error::{Result, TextError};

/// Minimum vocabulary size: room for special tokens, and for letters both at the beginning of a word and inside it.
const SMALLEST_WORDPIECE: usize = 500;

/// Minimum vocabulary size: `<|endoftext|>` and a token for each byte.
const SMALLEST_BPE: usize = 257;

/// Maximum length of a word, in bytes. The time that training takes grows with the square of a word's length.
const LONGEST_WORD: usize = 1000;

impl Tokenizer {
    /// Trains a byte-level BPE like GPT-2's: `<|endoftext|>` (token 0), the 256 bytes, and merges until there are
    /// `vocab_size` tokens or no pair occurs twice. Sennrich, Haddow and Birch, "Neural Machine Translation of Rare
    /// Words with Subword Units" (2016). Words of more than 1,000 bytes are split before training.
    ///
    /// # Errors
    /// [`TextError::Option`] if `vocab_size` has no room for the bytes.
    pub fn train_bpe<S: AsRef<str> + Sync>(texts: &[S], vocab_size: usize) -> Result<Self> {
        check_vocabulary_size(vocab_size, SMALLEST_BPE, "at least 257, one for each byte and the end")?;
        let trainer = BpeTrainer::builder()
            .vocab_size(vocab_size)
            .min_frequency(2)
            .special_tokens(vec![AddedToken::from(END_OF_TEXT, true)])
            .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
            .show_progress(false)
            .build();
        let mut inner = byte_level::byte_level(BPE::default(), false);
        let trained = train(&mut inner, TrainerWrapper::BpeTrainer(trainer), &as_texts(texts));
        trained.map_err(|error| learning_failed(&error))?;
        Ok(Self::new(inner))
    }

    /// Trains an uncased WordPiece tokenizer like BERT's, without accents: `[PAD]`, `[UNK]`, `[CLS]`, `[SEP]`,
    /// `[MASK]`, the letters that occur, and merges until there are `vocab_size` tokens or no pair occurs twice.
    /// Schuster and Nakajima, "Japanese and Korean Voice Search" (2012); Devlin et al. (2019). Words of more than 1,000
    /// bytes are split before training.
    ///
    /// # Errors
    /// [`TextError::Option`] if `vocab_size` has no room for the letters.
    pub fn train_wordpiece<S: AsRef<str> + Sync>(texts: &[S], vocab_size: usize) -> Result<Self> {
        check_vocabulary_size(vocab_size, SMALLEST_WORDPIECE, "at least 500")?;
        let inner = wordpiece::learned(&as_texts(texts), vocab_size).map_err(|error| learning_failed(&error))?;
        Ok(Self::new(inner))
    }
}

fn check_vocabulary_size(size: usize, smallest: usize, range: &'static str) -> Result<()> {
    if size >= smallest {
        return Ok(());
    }
    Err(TextError::Option { option: "vocabulary size", value: size.to_string(), range })
}

fn as_texts<S: AsRef<str>>(texts: &[S]) -> Vec<&str> {
    texts.iter().map(AsRef::as_ref).collect()
}

fn learning_failed(error: &dyn std::fmt::Display) -> TextError {
    failed(Path::new("the tokenizer"), error)
}

/// Trains a tokenizer. Long words are split first. The function is not generic in the texts, so that the training is compiled once.
pub(super) fn train(
    tokenizer: &mut HfTokenizer,
    mut trainer: TrainerWrapper,
    texts: &[&str],
) -> tokenizers::Result<()> {
    tokenizer.train(&mut trainer, pieces(texts)).map(|_| ())
}

/// Splits texts inside words longer than [`LONGEST_WORD`], such as a genome or a file in base64. Other texts stay whole.
fn pieces<'a>(texts: &[&'a str]) -> impl Iterator<Item = &'a str> {
    texts.iter().flat_map(|&text| {
        let mut rest = text;
        std::iter::from_fn(move || {
            let (piece, after) = rest.split_at(first_piece(rest));
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

/// Returns the number of bytes before the first place at which a text is split.
fn first_piece(text: &str) -> usize {
    let mut word = 0;
    for (i, letter) in text.char_indices() {
        if letter.is_whitespace() {
            word = i + letter.len_utf8();
        } else if i + letter.len_utf8() - word > LONGEST_WORD {
            return i;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_words_are_split() {
        let long = "é".repeat(1200);
        let texts = [format!("a b {long} c"), "d e".into(), String::new(), "f ".repeat(5000)];
        let texts = texts.each_ref().map(String::as_str);
        let pieces: Vec<&str> = pieces(&texts).collect();
        assert_eq!(pieces.concat(), texts.concat());
        assert_eq!(pieces.len(), 5);
        assert_eq!(pieces[0].len(), 4 + LONGEST_WORD);
        assert_eq!(pieces[3..], [texts[1], texts[3]]);
    }
}
