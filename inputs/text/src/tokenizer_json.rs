//! Tokenizers from a `tokenizer.json`, with validation.
//!
//! The `tokenizers` crate trusts such a file: with a malicious one it follows offsets out of bounds, allocates whatever
//! a size in the file claims, recurses as deep as a token is long, or panics. This module bounds all sizes before the
//! crate reads the file, and turns its panics into errors.

use std::{fmt, path::Path};

use grove_files::FileError;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use tokenizers::Tokenizer;

use crate::{
    error::{Result, TextError},
    files,
    panics::catch_panic,
    pieces,
    printable::excerpt,
    sentencepiece::charsmap,
    special,
};

/// Maximum file size in bytes. The largest published files, with 262,000 tokens, have 35 MB.
const LARGEST: u64 = 128 << 20;

/// Maximum length of a regular expression, in bytes. Published ones have up to about 2,000.
const LONGEST_PATTERN: usize = 16 << 10;

/// Maximum number of steps in one part of the file.
const MAX_STEPS: usize = 256;

/// Maximum factor by which one part of the file can lengthen a text. Unicode's longest replacement has 18 characters.
const MAX_GROWTH: usize = 1 << 16;

/// Maximum length of a word for WordPiece, in characters; published files have 100. The time is cubic in the length.
const LONGEST_WORD: u64 = 1 << 10;

/// Maximum length of a quoted library error, in characters.
const LONGEST_REASON: usize = 300;

/// Parts of the file that are checked. Missing parts and wrong types are left to the library.
#[derive(Deserialize)]
struct Parts {
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    decoder: Value,
    #[serde(default)]
    model: Model,
}

#[derive(Deserialize)]
struct Added {
    #[serde(default)]
    content: String,
    #[serde(default)]
    normalized: bool,
}

#[derive(Deserialize, Default)]
struct Model {
    #[serde(default)]
    vocab: Vocabulary,
    #[serde(default)]
    max_input_chars_per_word: u64,
}

/// Sizes of a vocabulary: a list of pieces with scores (unigram), or a map from tokens to ids.
#[derive(Default)]
struct Vocabulary {
    is_list: bool,
    longest: usize,
    bytes: usize,
}

impl Vocabulary {
    fn add(&mut self, token: &str) {
        self.longest = self.longest.max(token.len());
        self.bytes += token.len();
    }
}

impl<'de> Deserialize<'de> for Vocabulary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Tokens;

        impl<'de> Visitor<'de> for Tokens {
            type Value = Vocabulary;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("tokens and their numbers, or a list of pieces and their scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Vocabulary, A::Error> {
                let mut vocabulary = Vocabulary::default();
                while let Some((token, _)) = map.next_entry::<String, IgnoredAny>()? {
                    vocabulary.add(&token);
                }
                Ok(vocabulary)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Vocabulary, A::Error> {
                let mut vocabulary = Vocabulary { is_list: true, ..Vocabulary::default() };
                while let Some((piece, _)) = list.next_element::<(String, IgnoredAny)>()? {
                    vocabulary.add(&piece);
                }
                Ok(vocabulary)
            }
        }

        deserializer.deserialize_any(Tokens)
    }
}

/// Reads a `tokenizer.json`. Its truncation and padding settings are ignored.
///
/// # Errors
/// The file cannot be read, is not a tokenizer, or exceeds a limit; the error names the field.
pub fn from_file(path: impl AsRef<Path>) -> Result<Tokenizer> {
    let path = path.as_ref();
    let Some(bytes) = files::read(path, LARGEST)? else {
        return Err(FileError::io("open", path)(std::io::ErrorKind::NotFound.into()).into());
    };
    from_bytes(&bytes).map_err(|reason| TextError::config(path, reason))
}

/// Returns the tokenizer in a file's bytes, or the reason why they are refused.
fn from_bytes(bytes: &[u8]) -> std::result::Result<Tokenizer, String> {
    let not_one = |error: &dyn fmt::Display| {
        format!("it is not a tokenizer that can be read: {}", excerpt(&error.to_string(), LONGEST_REASON))
    };
    let parts: Parts = serde_json::from_slice(bytes).map_err(|error| not_one(&error))?;
    parts.check()?;
    // After a panic no values of the panicking code are used.
    let mut tokenizer = catch_panic(|| Tokenizer::from_bytes(bytes))
        .map_err(|message| not_one(&message))?
        .map_err(|error| not_one(&error))?;
    tokenizer.with_padding(None).with_truncation(None).map_err(|error| not_one(&error))?;
    Ok(tokenizer)
}

impl Parts {
    fn check(&self) -> std::result::Result<(), String> {
        let within = |part: &'static str| move |reason: String| format!("its {part}: {reason}");
        let growth = steps(&self.normalizer, "normalizers").map_err(within("normalizer"))?;
        steps(&self.pre_tokenizer, "pretokenizers").map_err(within("pre_tokenizer"))?;
        steps(&self.decoder, "decoders").map_err(within("decoder"))?;
        self.model.check().map_err(within("model"))?;
        let tokens = self.added_tokens.iter();
        // Some tokens are matched after normalisation, which can lengthen them.
        let lengths = tokens.map(|token| token.content.len() * if token.normalized { growth } else { 1 });
        let contents = self.added_tokens.iter().map(|token| token.content.as_str());
        special::check(contents, lengths.fold(0, usize::saturating_add)).map_err(within("added_tokens"))
    }
}

impl Model {
    fn check(&self) -> std::result::Result<(), String> {
        let Vocabulary { is_list, longest, bytes } = self.vocab;
        if is_list {
            pieces::check_unigram(longest, bytes)?;
        }
        if self.max_input_chars_per_word > LONGEST_WORD {
            let longest = self.max_input_chars_per_word;
            return Err(format!("its max_input_chars_per_word is {longest}; the maximum is {LONGEST_WORD}"));
        }
        Ok(())
    }
}

/// Checks the steps of a part, which can nest sequences under the name `list`. Returns the maximum factor by which they
/// can lengthen a text.
fn steps(part: &Value, list: &str) -> std::result::Result<usize, String> {
    let (mut count, mut growth) = (0usize, 1usize);
    let mut left = vec![part];
    while let Some(step) = left.pop() {
        count += 1;
        growth = growth.saturating_mul(check_step(step)?);
        left.extend(step.get(list).and_then(Value::as_array).into_iter().flatten());
        if count > MAX_STEPS {
            return Err(format!("it has more than {MAX_STEPS} steps"));
        }
        if growth > MAX_GROWTH {
            return Err(format!("its replacements can make a text more than {MAX_GROWTH} times longer"));
        }
    }
    Ok(growth)
}

/// Returns the maximum factor by which this step alone can lengthen a text.
fn check_step(step: &Value) -> std::result::Result<usize, String> {
    if let Some(charsmap) = step.get("precompiled_charsmap") {
        let text = charsmap.as_str().ok_or("its precompiled_charsmap is not a string")?;
        let bytes = base64::decode(text).map_err(|error| format!("its precompiled_charsmap is not base64: {error}"))?;
        charsmap::precompiled(&bytes)?;
    }
    let pattern = step.get("pattern");
    let text = |kind: &str| pattern.and_then(|pattern| pattern.get(kind)).and_then(Value::as_str);
    if let Some(pattern) = text("Regex").filter(|pattern| pattern.len() > LONGEST_PATTERN) {
        let length = pattern.len();
        return Err(format!("a regular expression has {length} bytes; the maximum is {LONGEST_PATTERN}"));
    }
    let content = |name: &str| step.get(name).and_then(Value::as_str).map_or(0, str::len);
    let replaced = match text("String") {
        Some(pattern) if !pattern.is_empty() => content("content").div_ceil(pattern.len()),
        // The pattern can match a single character, or the empty string between two.
        _ if pattern.is_some() && content("content") > 0 => content("content") + 1,
        _ => 1,
    };
    // Prepending lengthens even a text of one byte.
    let prepended = content("prepend") + 1;
    Ok(replaced.max(1).saturating_mul(prepended))
}
