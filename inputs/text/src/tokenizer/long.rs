//! Encoding of long texts in pieces. The tokenizers library needs more than a hundred bytes for each byte of a text.

use tokenizers::{
    NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer as HfTokenizer,
    pre_tokenizers::split::{Split, SplitPattern},
};

use super::Tokenizer;
use crate::{
    error::Result,
    patterns::{GPT2, LLAMA3, QWEN2},
};

/// Minimum length of a piece, in bytes.
const PIECE: usize = 1 << 18;

/// Number of pieces that are encoded at the same time.
const GROUP: usize = 16;

/// Patterns of words, of which none matches across the end of an ASCII letter and a following space: those of GPT-2,
/// LLaMA 3 and Qwen2. None looks back.
const PATTERNS: [&str; 3] = [GPT2, LLAMA3, QWEN2];

impl Tokenizer {
    /// Encodes a long text in pieces, as [`encode`](Self::encode) does. Returns `None` for a text that is short, and for a
    /// tokenizer whose tokens could differ.
    pub(super) fn encode_long(&self, text: &str) -> Result<Option<Vec<u32>>> {
        if text.len() < GROUP * PIECE { Ok(None) } else { self.encode_pieces(text, PIECE) }
    }

    fn encode_pieces(&self, text: &str, size: usize) -> Result<Option<Vec<u32>>> {
        let Some((mut ids, end)) = self.surroundings()? else { return Ok(None) };
        let mut pieces = pieces(text, size);
        loop {
            let group: Vec<&str> = pieces.by_ref().take(GROUP).collect();
            if group.is_empty() {
                break;
            }
            let encoded = self.run(|inner| inner.encode_batch_fast(group, false))?;
            encoded.iter().for_each(|encoding| ids.extend(encoding.get_ids()));
        }
        ids.extend(end);
        Ok(Some(ids))
    }

    /// Returns the tokens that the post-processor puts before and after a text; `None` if texts cannot be cut.
    fn surroundings(&self) -> Result<Option<(Vec<u32>, Vec<u32>)>> {
        if !can_cut(&self.inner) {
            return Ok(None);
        }
        let encode = |special| self.run(|inner| inner.encode_fast("a", special));
        let (bare, whole) = (encode(false)?, encode(true)?);
        let (bare, whole) = (bare.get_ids(), whole.get_ids());
        let start = whole.windows(bare.len().max(1)).position(|part| part == bare);
        Ok(start.map(|start| (whole[..start].to_vec(), whole[start + bare.len()..].to_vec())))
    }
}

/// Splits a text after an ASCII letter that a space or a newline follows, into pieces of at least `size` bytes.
fn pieces(text: &str, size: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let bytes = rest.as_bytes();
        let is_end = |&at: &usize| bytes[at - 1].is_ascii_alphabetic() && matches!(bytes[at], b' ' | b'\n');
        let end = (size.max(1)..bytes.len()).find(is_end).unwrap_or(bytes.len());
        let (piece, after) = rest.split_at(end);
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// Returns true if a tokenizer's tokens do not change when a text is cut by [`pieces`]: no added token, normalisation or
/// word reaches over such a place or depends on the text beyond it.
fn can_cut(inner: &HfTokenizer) -> bool {
    let added = inner.get_added_tokens_decoder();
    let within_words = added.values().all(|token| !token.rstrip && !token.content.contains(char::is_whitespace));
    let local = matches!(inner.get_normalizer(), None | Some(NormalizerWrapper::NFC(_)));
    let steps = match inner.get_pre_tokenizer() {
        Some(PreTokenizerWrapper::Sequence(steps)) => steps.as_ref(),
        Some(step) => std::slice::from_ref(step),
        None => &[],
    };
    within_words && local && steps.iter().all(is_local) && steps.iter().any(splits_words)
}

/// Returns true if a step's result on either side of a cut does not depend on the other side.
fn is_local(step: &PreTokenizerWrapper) -> bool {
    match step {
        PreTokenizerWrapper::ByteLevel(bytes) => !bytes.add_prefix_space,
        PreTokenizerWrapper::Digits(_) => true,
        step => splits_words(step),
    }
}

/// Returns true if a step ends a word at each cut.
fn splits_words(step: &PreTokenizerWrapper) -> bool {
    match step {
        PreTokenizerWrapper::ByteLevel(bytes) => bytes.use_regex && !bytes.add_prefix_space,
        PreTokenizerWrapper::Split(Split { pattern: SplitPattern::Regex(pattern), behavior, invert, .. }) => {
            PATTERNS.contains(&&**pattern) && *behavior == SplitDelimiterBehavior::Isolated && !invert
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grove_tree::Key;
    use tokenizers::{
        AddedToken, normalizers::unicode::NFC, pre_tokenizers::byte_level::ByteLevel,
        pre_tokenizers::sequence::Sequence, processors::template::TemplateProcessing,
    };

    const PARTS: [&str; 24] = [
        " ",
        "\n",
        "  ",
        "\n\n",
        "\r\n",
        "\t",
        "a",
        "the",
        "don't",
        "'s",
        "IT'S",
        "é",
        "e\u{301}",
        " \u{301}",
        "ß",
        "日本",
        "🙂",
        "1",
        "1234",
        "...",
        "!\n",
        "<|end|>",
        "<|endoftext|>",
        "\u{a0}",
    ];

    fn gpt2() -> Tokenizer {
        Tokenizer::from_path("../../models/assets/gpt2-austen").expect("a tokenizer")
    }

    /// GPT-2's vocabulary with the words of another model, and with a token before each text.
    fn with_words(pattern: &str) -> Tokenizer {
        let mut tokenizer = gpt2();
        let words = Split::new(SplitPattern::Regex(pattern.into()), SplitDelimiterBehavior::Isolated, false);
        let steps = vec![words.expect("a pattern").into(), ByteLevel::new(false, true, false).into()];
        tokenizer.inner.with_pre_tokenizer(Some(Sequence::new(steps)));
        tokenizer.inner.with_normalizer(Some(NFC));
        let end = AddedToken::from("<|end|>", true).lstrip(true);
        tokenizer.inner.add_special_tokens(&[end]);
        let mut template = TemplateProcessing::builder();
        template.try_single("<|endoftext|> $A <|end|>").expect("a template");
        let special = ["<|endoftext|>", "<|end|>"].map(|token| (token, tokenizer.token_to_id(token).expect("a token")));
        let template = template.special_tokens(special.to_vec()).build().expect("a template");
        tokenizer.inner.with_post_processor(Some(template));
        tokenizer
    }

    #[test]
    fn pieces_have_the_tokens_of_the_whole_text() {
        let tokenizers: Vec<Tokenizer> = std::iter::once(gpt2()).chain(PATTERNS.map(with_words)).collect();
        for (seed, tokenizer) in (0..200).flat_map(|seed| tokenizers.iter().map(move |tokenizer| (seed, tokenizer))) {
            let bits = Key::new(seed).bits(60);
            let text: String = bits.iter().map(|&bits| PARTS[bits as usize % PARTS.len()]).collect();
            let whole = tokenizer.encode(&text).expect("tokens");
            for size in [1, 7, 40] {
                let found = tokenizer.encode_pieces(&text, size).expect("tokens");
                assert_eq!(found.as_ref(), Some(&whole), "{text:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(pieces("ab cd\nef gh", 1).collect::<Vec<_>>(), ["ab", " cd", "\nef", " gh"]);
        assert_eq!(pieces("ab cd 3. ef gh", 4).collect::<Vec<_>>(), ["ab cd", " 3. ef", " gh"]);
        assert_eq!(pieces("1 2 3", 1).collect::<Vec<_>>(), ["1 2 3"]);
        let (tokenizer, text) = (gpt2(), "She walked to the river.\n".repeat(200_000));
        let ids = tokenizer.encode_long(&text).expect("tokens").expect("a long text");
        let line = tokenizer.encode("She walked to the river.\n").expect("tokens");
        assert_eq!((ids.len(), &ids[..line.len()]), (200_000 * line.len(), &line[..]));
        assert_eq!(tokenizer.encode_long("a b").expect("tokens"), None);
    }

    /// Spaces that a tokenizer adds to the beginning of a text would be added to each piece.
    #[test]
    fn other_tokenizers_read_texts_whole() {
        let cut = |tokenizer: &Tokenizer| tokenizer.encode_pieces("the cat sat", 1).expect("tokens").is_some();
        assert!(cut(&gpt2()));
        let with = |step: PreTokenizerWrapper| {
            let mut tokenizer = gpt2();
            tokenizer.inner.with_pre_tokenizer(Some(step));
            tokenizer
        };
        assert!(!cut(&with(ByteLevel::new(true, true, true).into())));
        assert!(!cut(&with(ByteLevel::new(false, true, false).into())));
        let mut with_space = gpt2();
        with_space.inner.add_tokens(&[AddedToken::from("cat sat", false)]);
        assert!(!cut(&with_space));
        let llama = Tokenizer::from_path("tests/fixtures/tokenizers/llama.model").expect("a tokenizer");
        assert!(!cut(&llama));
    }
}
