//! Shared parts of SentencePiece models and GGUF's "llama" vocabularies: pieces with scores, and their tokenizer.

use std::collections::HashMap;

use tokenizers::{
    AddedToken, DecoderWrapper, NormalizerWrapper, Tokenizer,
    decoders::{byte_fallback::ByteFallback, fuse::Fuse, sequence::Sequence as Decoders, strip::Strip as StripDecoder},
    models::{
        ModelWrapper,
        bpe::{BPE, Merges},
        unigram::Unigram,
    },
    normalizers::{
        Sequence as Normalizers,
        precompiled::Precompiled,
        replace::{Replace, ReplacePattern},
    },
    pre_tokenizers::metaspace::{Metaspace, PrependScheme},
};

use crate::special;

/// Character that represents a space within pieces, U+2581.
pub(crate) const SPACE: char = '▁';

/// Maximum total length of unigram pieces, in bytes. Each byte becomes a trie node of about 200 bytes.
const MAX_UNIGRAM: usize = 8 << 20;

/// Maximum length of a unigram piece, in bytes. The trie is dropped recursively, so its depth needs stack.
const LONGEST_UNIGRAM: usize = 1 << 10;

/// Kind of a piece. The numbers are the same in both file formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

impl Kind {
    /// Returns the kind with a number from 1 to 6. Other numbers are normal pieces, as in llama.cpp.
    pub(crate) fn of(number: i32) -> Self {
        match number {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

/// A piece of text that is one token. Its index in the vocabulary is its id.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    pub(crate) text: String,
    pub(crate) score: f32,
    pub(crate) kind: Kind,
}

/// Normalisation and decoding of a SentencePiece vocabulary.
#[derive(Debug)]
pub(crate) struct Pipeline {
    /// Character map, applied first.
    pub(crate) charsmap: Option<Precompiled>,
    /// If true, runs of spaces are collapsed to one, and trailing spaces are removed.
    pub(crate) collapse: bool,
    /// Placement of the space that is prepended unless the text begins with one: before the first part of a text only,
    /// or, in transformers' legacy mode, after every special token too.
    pub(crate) prefix: PrependScheme,
    /// If true, spaces are replaced by [`SPACE`].
    pub(crate) escape: bool,
}

/// Returns the placement of the space before a text. `legacy` also inserts one after each special token.
pub(crate) fn prepend_scheme(prefix: bool, legacy: bool) -> PrependScheme {
    match (prefix, legacy) {
        (false, _) => PrependScheme::Never,
        (true, false) => PrependScheme::First,
        (true, true) => PrependScheme::Always,
    }
}

/// Maps each piece to its id. The error describes what is wrong with the list.
pub(crate) fn numbered<'a>(texts: impl Iterator<Item = &'a str>) -> Result<HashMap<&'a str, u32>, String> {
    let mut ids = HashMap::new();
    for (id, text) in texts.enumerate() {
        let id = u32::try_from(id).map_err(|_| "it has more tokens than 32-bit ids".to_owned())?;
        if let Some(first) = ids.insert(text, id) {
            return Err(format!("tokens {first} and {id} are both {text:?}"));
        }
    }
    if ids.is_empty() {
        return Err("it has no tokens".into());
    }
    Ok(ids)
}

/// Checks that apply to BPE and unigram pieces.
fn checked(pieces: &[Piece]) -> Result<HashMap<&str, u32>, String> {
    if let Some((id, piece)) = pieces.iter().enumerate().find(|(_, piece)| piece.score.is_nan()) {
        return Err(format!("the score of token {id}, {:?}, is not a number", piece.text));
    }
    numbered(pieces.iter().map(|piece| piece.text.as_str()))
}

/// Builds a BPE model that applies `merges` in order. Text without a piece falls back to bytes, or to the unknown
/// piece.
pub(crate) fn bpe(pieces: &[Piece], merges: Merges) -> Result<BPE, String> {
    let vocabulary: Vec<(String, u32)> = checked(pieces)?.into_iter().map(|(text, id)| (text.to_owned(), id)).collect();
    let mut builder = BPE::builder()
        .vocab_and_merges(vocabulary.into_iter().collect::<tokenizers::models::bpe::Vocab>(), merges)
        .fuse_unk(true)
        .byte_fallback(true);
    if let Some(unknown) = pieces.iter().find(|piece| piece.kind == Kind::Unknown) {
        builder = builder.unk_token(unknown.text.clone());
    }
    builder.build().map_err(|error| format!("its merges do not fit its tokens: {error}"))
}

/// Checks the length of a unigram model's longest piece and the total length of its pieces, in bytes.
pub(crate) fn check_unigram(longest: usize, bytes: usize) -> Result<(), String> {
    if longest > LONGEST_UNIGRAM {
        return Err(format!("one of its pieces has {longest} bytes; the maximum is {LONGEST_UNIGRAM}"));
    }
    if bytes > MAX_UNIGRAM {
        return Err(format!("its pieces have more than {} MiB of text", MAX_UNIGRAM >> 20));
    }
    Ok(())
}

/// Builds a unigram model, which selects the most likely sequence of pieces.
pub(crate) fn unigram(pieces: &[Piece]) -> Result<Unigram, String> {
    checked(pieces)?;
    let lengths = || pieces.iter().map(|piece| piece.text.len());
    check_unigram(lengths().max().unwrap_or(0), lengths().sum())?;
    let Some(unknown) = pieces.iter().position(|piece| piece.kind == Kind::Unknown) else {
        return Err("it has no piece for unknown characters, which a unigram model needs".into());
    };
    let scored = pieces.iter().map(|piece| (piece.text.clone(), f64::from(piece.score))).collect();
    Unigram::from(scored, Some(unknown), true).map_err(|error| error.to_string())
}

/// Builds a tokenizer from a model and its pipeline. `more` are additional added tokens.
pub(crate) fn tokenizer(
    model: impl Into<ModelWrapper>,
    pieces: &[Piece],
    pipeline: Pipeline,
    more: &[AddedToken],
) -> Result<Tokenizer, String> {
    let mut tokenizer = Tokenizer::new(model);
    let mut normalizers: Vec<NormalizerWrapper> = pipeline.charsmap.into_iter().map(Into::into).collect();
    if pipeline.collapse {
        normalizers.push(replace(" {2,}", " ")?.into());
        // Leading spaces need no special treatment, since one is prepended anyway.
        normalizers.push(replace(r" +\z", "")?.into());
    }
    if !normalizers.is_empty() {
        tokenizer.with_normalizer(Some(Normalizers::new(normalizers)));
    }
    let space = if pipeline.escape { SPACE } else { ' ' };
    tokenizer.with_pre_tokenizer(Some(Metaspace::new(space, pipeline.prefix, false)));
    let mut decoders: Vec<DecoderWrapper> = Vec::new();
    if pipeline.escape {
        decoders.push(Replace::new(SPACE.to_string(), " ").map_err(|error| error.to_string())?.into());
    }
    decoders.push(ByteFallback::default().into());
    decoders.push(Fuse::default().into());
    if pipeline.prefix != PrependScheme::Never {
        decoders.push(StripDecoder::new(' ', 1, 0).into());
    }
    tokenizer.with_decoder(Some(Decoders::new(decoders)));
    let own = pieces.iter().filter_map(|piece| match piece.kind {
        Kind::Control | Kind::Unknown => Some(special::added(&piece.text, true)),
        Kind::UserDefined => Some(special::added(&piece.text, false)),
        Kind::Normal | Kind::Unused | Kind::Byte => None,
    });
    let all: Vec<AddedToken> = own.chain(more.iter().cloned()).collect();
    special::add(&mut tokenizer, &all)?;
    Ok(tokenizer)
}

fn replace(pattern: &str, with: &str) -> Result<Replace, String> {
    Replace::new(ReplacePattern::Regex(pattern.into()), with).map_err(|error| error.to_string())
}
