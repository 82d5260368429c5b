//! llama.cpp's GGUF files: typed keys and values, a table of tensors, and the tensors' data.
//!
//! Source: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Supports versions 2 and 3, little-endian. The
//! header is parsed in place, and every size in it is compared with the file before use.
//!
//! Quantized tensors are decoded by `candle-core` ([`blocks`]). Its header parser is not used: it allocates any claimed
//! length, follows nested arrays of any depth, overlooks duplicate names, replaces invalid UTF-8, and rejects files
//! whose tensors include integers, 64-bit floats or newer block types.

pub(crate) mod block_type;
mod blocks;
mod json;
pub(crate) mod metadata;
mod reader;
mod split;
mod tensors;
mod value;

use std::sync::Arc;

pub use block_type::BlockType;
pub use metadata::GgufMetadata;
pub use value::{GgufArray, GgufValue};

pub(crate) use blocks::Blocks;
#[cfg(feature = "hub")]
pub(crate) use split::part_name;
pub(crate) use split::{Split, part_of};

use reader::Reader;

use crate::contents::Contents;
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;

const MAGIC: &[u8] = b"GGUF";
/// Magic bytes of big-endian files.
const REVERSED: &[u8] = b"FUGG";

const ALIGNMENT_KEY: &str = "general.alignment";
/// Default alignment in bytes.
const USUAL_ALIGNMENT: usize = 32;

/// Returns true if the content is a GGUF file, of any version and byte order.
pub(crate) fn is_gguf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) || bytes.starts_with(REVERSED)
}

/// Reads and checks the header.
pub(crate) fn read_contents(file: &Arc<MappedFile>) -> Result<Contents> {
    let (path, len) = (file.path(), file.bytes().len());
    let malformed = |reason: String| WeightsError::malformed(path, reason);
    if let Some(reason) = refusal(file.bytes()) {
        return Err(WeightsError::unsupported(path, reason));
    }
    let mut reader = Reader::new(file.bytes(), MAGIC.len());
    let mut numbers = || Ok((reader.u32()?, reader.u64()?, reader.u64()?));
    let (version, tensors, keys) = numbers().map_err(|reason: String| malformed(format!("its header: {reason}")))?;

    let gguf = GgufMetadata::read(file, version, keys, &mut reader)?;
    let alignment = alignment(&gguf).map_err(malformed)?;
    let rows = tensors::rows(path, tensors, &mut reader)?;
    let start = reader.position().checked_next_multiple_of(alignment);
    let start = start.ok_or_else(|| malformed(format!("key `{ALIGNMENT_KEY}`: {alignment} is too large")))?;
    let entries = tensors::places(path, rows, start, alignment, len)?;

    let general = gguf.iter().filter(|(key, _)| key.starts_with("general."));
    let metadata = general.filter_map(|(key, value)| Some((key.to_string(), value.string()?.to_string()))).collect();
    Ok(Contents { entries, metadata, gguf: Some(gguf) })
}

/// Returns the reason for rejecting an unsupported version or byte order; `None` if the file is supported.
fn refusal(bytes: &[u8]) -> Option<String> {
    let version = u32::from_le_bytes(*bytes.get(MAGIC.len()..)?.first_chunk()?);
    // Big-endian files without the reversed magic are recognised by their version.
    if bytes.starts_with(REVERSED) || version != 0 && version.trailing_zeros() >= 16 {
        return Some("its numbers are big-endian; convert it with gguf-py's gguf-convert-endian".into());
    }
    match version {
        2 | 3 => None,
        1 => Some("it is of GGUF's version 1, of August 2023; convert the original model again".into()),
        other => Some(format!("it is of GGUF's version {other}; 2 and 3 are read")),
    }
}

/// Returns the alignment of the tensors' offsets, in bytes. The error is the reason.
fn alignment(metadata: &GgufMetadata) -> std::result::Result<usize, String> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(USUAL_ALIGNMENT) };
    let alignment = value.integer().and_then(|alignment| usize::try_from(alignment).ok());
    alignment
        .filter(|alignment| alignment.is_power_of_two())
        .ok_or_else(|| format!("key `{ALIGNMENT_KEY}`: it must be a power of two"))
}
