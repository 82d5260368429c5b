//! BERT's tokenizer from a `vocab.txt`, the only tokenizer file of older repositories.

use std::{collections::BTreeMap, path::Path};
use tokenizers::{
    AddedToken, NormalizedString, Normalizer, Tokenizer as HfTokenizer,
    decoders::wordpiece::WordPiece as WordPieceDecoder,
    models::{
        ModelWrapper, TrainerWrapper,
        wordpiece::{WordPiece, WordPieceTrainer},
    },
    normalizers::bert::BertNormalizer,
    pre_tokenizers::bert::BertPreTokenizer,
    processors::bert::BertProcessing,
};

use super::class::{Class, Settings};
use crate::error::{Result, TextError};

/// BERT's special tokens: unknown, beginning, separator, padding, mask.
const SPECIAL: [&str; 5] = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"];

/// Maximum number of letters and symbols in a trained vocabulary; rarer ones are unknown.
const ALPHABET: usize = 200;

/// Reads `vocab.txt`, and the settings for case, accents, special and added tokens in the files beside it.
pub(super) fn from_vocabulary(vocab: &Path, settings: &mut Settings) -> Result<HfTokenizer> {
    match settings.class {
        Class::Bert { .. } => {}
        Class::Whole { .. } => settings.class = Class::Bert { types: true },
        _ => return Err(settings.not_from("a vocab.txt", vocab)),
    }
    let broken = |reason: String| TextError::tokenizer(vocab, reason);
    let special = ["unk_token", "cls_token", "sep_token"].map(|role| settings.special(role).unwrap_or_default());
    let pieces = WordPiece::from_file(&vocab.to_string_lossy()).unk_token(special[0].clone()).build();
    let pieces = pieces.map_err(|error| broken(format!("it is not a list of word pieces: {error}")))?;
    let tokenizer = with_pieces(pieces, settings.bert_normalizer()?, &special);
    let mut tokenizer = tokenizer.map_err(|token| broken(format!("{token} is not among the word pieces")))?;
    settings.add_tokens(&mut tokenizer)?;
    Ok(tokenizer)
}

/// Trains an uncased WordPiece tokenizer.
pub(super) fn learned(
    texts: &[&str],
    vocab_size: usize,
) -> std::result::Result<HfTokenizer, Box<dyn std::error::Error + Send + Sync>> {
    let mut learner = HfTokenizer::new(WordPiece::default());
    learner.with_normalizer(Some(BertNormalizer::default())).with_pre_tokenizer(Some(BertPreTokenizer));
    let alphabet = alphabet(texts)?;
    // The library numbers continuation pieces in hash-map order unless they are given in advance, so that training
    // would not be reproducible.
    let inner = alphabet.iter().filter(|letter| letter.is_alphanumeric()).map(|letter| format!("##{letter}"));
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(String::from);
    let first = special.into_iter().chain(inner).map(|token| AddedToken::from(token, true));
    let trainer = WordPieceTrainer::builder()
        .vocab_size(vocab_size)
        .min_frequency(2)
        .limit_alphabet(alphabet.len())
        .initial_alphabet(alphabet.iter().copied().collect())
        .special_tokens(first.collect())
        .show_progress(false)
        .build();
    super::learning::train(&mut learner, TrainerWrapper::WordPieceTrainer(trainer), texts)?;
    let ModelWrapper::WordPiece(pieces) = learner.get_model() else { unreachable!("word pieces stay word pieces") };
    let tokenizer = with_pieces(pieces.clone(), BertNormalizer::default(), &SPECIAL[..3]);
    let mut tokenizer = tokenizer.map_err(|token| format!("{token} was not learned"))?;
    tokenizer.add_special_tokens(&SPECIAL.map(|token| AddedToken::from(token, true)));
    Ok(tokenizer)
}

/// Returns the most frequent letters and symbols, in code-point order.
fn alphabet(texts: &[&str]) -> std::result::Result<Vec<char>, Box<dyn std::error::Error + Send + Sync>> {
    let mut counts = BTreeMap::new();
    for text in texts {
        let mut text = NormalizedString::from(*text);
        BertNormalizer::default().normalize(&mut text)?;
        for letter in text.get().chars().filter(|letter| !letter.is_whitespace()) {
            *counts.entry(letter).or_insert(0usize) += 1;
        }
    }
    let mut letters: Vec<(char, usize)> = counts.into_iter().collect();
    letters.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    letters.truncate(ALPHABET);
    letters.sort();
    Ok(letters.into_iter().map(|(letter, _)| letter).collect())
}

/// Returns BERT's tokenizer with these pieces and its unknown, beginning and separator tokens, or the token that the
/// pieces lack.
fn with_pieces(
    pieces: WordPiece,
    normalizer: BertNormalizer,
    special: &[impl AsRef<str>],
) -> std::result::Result<HfTokenizer, String> {
    let mut tokenizer = HfTokenizer::new(pieces);
    let id = |i: usize| {
        let token = special[i].as_ref();
        tokenizer.token_to_id(token).map(|id| (token.to_owned(), id)).ok_or_else(|| token.to_owned())
    };
    let (cls, sep) = (id(1)?, id(2)?);
    id(0)?;
    tokenizer.with_normalizer(Some(normalizer));
    tokenizer.with_pre_tokenizer(Some(BertPreTokenizer));
    tokenizer.with_decoder(Some(WordPieceDecoder::default()));
    tokenizer.with_post_processor(Some(BertProcessing::new(sep, cls)));
    Ok(tokenizer)
}

#[cfg(test)]
mod tests {
    use crate::Tokenizer;

    #[test]
    fn the_same_text_teaches_the_same_pieces() {
        let words = ["river", "rivers", "arrive", "driver", "thrive", "Élan", "cat,", "cattle", "scatter", "category"];
        let text: String = (0..400).map(|i| words[i * i % 7 + i % 4].to_owned() + " ").collect();
        let learned = || {
            let tokenizer = Tokenizer::train_wordpiece(&[&text], 500).unwrap();
            (0..tokenizer.vocab_size() as u32).map(|id| tokenizer.id_to_token(id).unwrap()).collect::<Vec<_>>()
        };
        let first = learned();
        assert_eq!(first[..5], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]);
        assert!(first.contains(&"river".to_owned()) && first.contains(&"elan".to_owned()), "{first:?}");
        for _ in 0..8 {
            assert_eq!(learned(), first);
        }
    }
}
