//! GPT-2's mapping from bytes to characters.

use std::{collections::HashSet, sync::LazyLock};

use tokenizers::pre_tokenizers::byte_level::ByteLevel;

/// Character of each byte: the byte itself if it is printable, otherwise a character from U+0100 on.
static LETTERS: LazyLock<Vec<char>> = LazyLock::new(|| {
    let visible = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    let mut others = (256u32..).filter_map(char::from_u32);
    (0..=255).map(|byte| if visible(byte) { byte.into() } else { others.next().unwrap_or_default() }).collect()
});

/// Set of these characters.
static ALPHABET: LazyLock<HashSet<char>> = LazyLock::new(|| ByteLevel::alphabet().into_iter().collect());

/// Returns true if a token consists of these characters only.
pub(super) fn is_spelled(token: &str) -> bool {
    token.chars().all(|letter| ALPHABET.contains(&letter))
}

/// Maps the bytes of a text to these characters.
pub(super) fn spell(text: &str) -> String {
    text.bytes().map(|byte| LETTERS[usize::from(byte)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn character_classes_match_the_library() {
        assert_eq!(LETTERS.iter().copied().collect::<HashSet<_>>(), *ALPHABET);
        assert_eq!(spell(" é\n"), "ĠÃ©Ċ");
        assert!(is_spelled("Ġhello") && !is_spelled("a b"));
    }
}
