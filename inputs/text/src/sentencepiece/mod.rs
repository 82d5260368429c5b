//! Tokenizers from a SentencePiece model, `tokenizer.model`.
//!
//! Older LLaMA, Mistral and similar repositories have only this file. For LLaMA's kind of model, [`from_file`] gives
//! the same tokens as transformers' `LlamaTokenizer` (version 5). SentencePiece's other options, normalisation and
//! unigram models, follow SentencePiece's own encoder.
//!
//! Two behaviours are transformers' and not SentencePiece's: special tokens are recognised within a text, and a text
//! that begins with a space gets no second one.

use std::path::Path;

use grove_files::FileError;
use prost::Message;
use tokenizers::Tokenizer;

pub(crate) mod charsmap;
mod options;
mod proto;

pub use options::Options;

use crate::{
    error::{Result, TextError},
    files,
    merges::{self, Order},
    pieces::{self, Kind, Piece, Pipeline},
    special,
};

/// Maximum file size in bytes. The largest published models, with 262,000 pieces, have less than 5 MB.
const LARGEST: u64 = 16 << 20;

/// Reads a `tokenizer.model`, with the options in `tokenizer_config.json`, `special_tokens_map.json` and
/// `added_tokens.json` beside it.
///
/// # Errors
/// The file cannot be read, is not a SentencePiece model, or is inconsistent; or a file beside it is.
pub fn from_file(path: impl AsRef<Path>) -> Result<Tokenizer> {
    let path = path.as_ref();
    let Some(bytes) = files::read(path, LARGEST)? else {
        return Err(FileError::io("open", path)(std::io::ErrorKind::NotFound.into()).into());
    };
    build(&bytes, &Options::beside(path)?, path)
}

/// Builds a tokenizer from a model in memory.
///
/// # Errors
/// The bytes are not a supported model.
pub fn from_bytes(bytes: &[u8], options: &Options) -> Result<Tokenizer> {
    build(bytes, options, Path::new("the model in memory"))
}

fn build(bytes: &[u8], options: &Options, file: &Path) -> Result<Tokenizer> {
    let wrong = |reason: String| TextError::sentencepiece(file, reason);
    let model = proto::Model::decode(bytes).map_err(|error| wrong(instead(bytes, &error.to_string())))?;
    if model.pieces.is_empty() {
        return Err(wrong(instead(bytes, "it has no pieces")));
    }
    let trainer = model.trainer.unwrap_or_default();
    let normalizer = model.normalizer.unwrap_or_default();
    if trainer.space_as_suffix {
        return Err(wrong("it puts the space after words, which the tokenizers crate does not support".into()));
    }
    let pieces: Vec<Piece> = model
        .pieces
        .into_iter()
        .map(|piece| Piece { text: piece.piece, score: piece.score, kind: Kind::of(piece.kind.unwrap_or(1)) })
        .collect();
    let spaces_first = options.add_prefix_space.or(normalizer.add_dummy_prefix).unwrap_or(true);
    let charsmap = match normalizer.charsmap.as_slice() {
        [] => None,
        bytes => Some(charsmap::precompiled(bytes).map_err(wrong)?),
    };
    let pipeline = Pipeline {
        charsmap,
        collapse: normalizer.remove_extra_whitespaces.unwrap_or(true),
        prefix: pieces::prepend_scheme(spaces_first, options.legacy),
        escape: normalizer.escape_whitespaces.unwrap_or(true),
    };
    let named = options.named(&pieces);
    let mut tokenizer = match trainer.model.unwrap_or(1) {
        1 => pieces::tokenizer(pieces::unigram(&pieces).map_err(wrong)?, &pieces, pipeline, &named),
        2 => {
            let merges = merges::recover(&pieces, Order::Rank).map_err(wrong)?;
            pieces::tokenizer(pieces::bpe(&pieces, merges).map_err(wrong)?, &pieces, pipeline, &named)
        }
        other => Err(format!("it is of kind {other}; known are 1, unigram, and 2, byte pairs")),
    }
    .map_err(wrong)?;
    options.add_to(&mut tokenizer, file)?;
    let usual = [trainer.bos.as_deref().unwrap_or("<s>"), trainer.eos.as_deref().unwrap_or("</s>")];
    let [bos, eos] = options.ends(&tokenizer, usual, file)?;
    special::surround(&mut tokenizer, bos, eos).map_err(wrong)?;
    Ok(tokenizer)
}

/// Returns a description of bytes that are not a model.
fn instead(bytes: &[u8], otherwise: &str) -> String {
    if bytes.is_empty() {
        return "it is empty".into();
    }
    if let Some(found) = grove_files::failed_download(bytes) {
        return found.into();
    }
    let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let (word, rank) = line.split_at(line.iter().position(|byte| *byte == b' ').unwrap_or(line.len()));
    if word.len() >= 4 && rank.len() > 1 && rank[1..].iter().all(u8::is_ascii_digit) {
        return "it is a tiktoken file, as LLaMA 3 has it; use the tokenizer.json of the model instead".into();
    }
    otherwise.into()
}
