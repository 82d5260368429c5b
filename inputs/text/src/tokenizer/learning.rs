//! Training of tokenizers.

use tokenizers::{Tokenizer, models::TrainerWrapper};

/// Maximum length of a word, in bytes. The time that training takes grows with the square of a word's length.
const LONGEST_WORD: usize = 1000;

/// Trains a tokenizer. Long words are split first. The function is not generic in the texts, so that the training is compiled once.
pub(super) fn train(tokenizer: &mut Tokenizer, mut trainer: TrainerWrapper, texts: &[&str]) -> tokenizers::Result<()> {
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
