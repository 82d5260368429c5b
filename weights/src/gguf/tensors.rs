//! The table of tensors, and their positions in the file.

use std::collections::HashSet;
use std::path::Path;

use super::BlockType;
use super::metadata::LONGEST_NAME;
use super::reader::Reader;
use crate::entry::{Entry, Form, StoredDtype, element_count, row_major};
use crate::error::{Result, WeightsError};

/// Maximum number of axes in the format.
const MAX_AXES: u32 = 4;
/// Minimum size of a row of the table in bytes: the length of its name, its rank, its type and its offset.
const SMALLEST_ROW: usize = 8 + 4 + 4 + 8;
/// Maximum number of tensors; the largest models have some thousands. The limit bounds the memory of the table.
const MAX_TENSORS: u64 = 1 << 20;

/// A tensor's row in the table.
#[derive(Debug)]
pub(super) struct Row<'a> {
    name: &'a str,
    /// Shape, outermost axis first, unlike in the file.
    shape: Vec<usize>,
    kind: Kind,
    /// Offset from the start of the tensor data, in bytes.
    offset: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Plain(StoredDtype),
    Blocks(BlockType),
}

impl Kind {
    fn of_number(number: u32) -> Option<Self> {
        Some(Self::Plain(match number {
            0 => StoredDtype::F32,
            1 => StoredDtype::F16,
            24 => StoredDtype::I8,
            25 => StoredDtype::I16,
            26 => StoredDtype::I32,
            27 => StoredDtype::I64,
            28 => StoredDtype::F64,
            30 => StoredDtype::BF16,
            _ => return BlockType::of_number(number).map(Self::Blocks),
        }))
    }

    /// Returns the size in bytes of a tensor of this shape.
    fn bytes(self, shape: &[usize]) -> std::result::Result<usize, String> {
        let too_many = || format!("its shape {shape:?} has more elements than can be counted");
        let count = element_count(shape).ok_or_else(too_many)?;
        match self {
            Self::Plain(dtype) => count.checked_mul(dtype.bitsize() / 8).ok_or_else(too_many),
            Self::Blocks(kind) => {
                let row = shape.last().copied().unwrap_or(1);
                let bytes = kind.row_bytes(row).ok_or_else(|| {
                    format!("its rows of {row} values are not whole blocks of {} ({kind})", kind.values_per_block())
                })?;
                // A tensor with empty rows has no bytes.
                let rows = count.checked_div(row).unwrap_or(0);
                rows.checked_mul(bytes).ok_or_else(too_many)
            }
        }
    }
}

/// Reads `count` rows.
///
/// # Errors
/// [`WeightsError::Malformed`] before the tensor's name is known; then [`WeightsError::MalformedTensor`], and
/// [`WeightsError::Unsupported`] for unknown types.
pub(super) fn rows<'a>(path: &Path, count: u64, reader: &mut Reader<'a>) -> Result<Vec<Row<'a>>> {
    let malformed = |reason: String| WeightsError::malformed(path, reason);
    reader.check_count(count, SMALLEST_ROW, MAX_TENSORS, "tensors").map_err(malformed)?;
    let mut rows = Vec::new();
    let mut seen = HashSet::new();
    for number in 1..=count {
        let name = reader
            .text(LONGEST_NAME)
            .map_err(|reason| malformed(format!("the name of tensor {number} of {count}: {reason}")))?;
        let wrong = |reason: String| WeightsError::malformed_tensor(path, name, reason);
        let (shape, kind, offset) = facts(reader).map_err(wrong)?;
        let kind = Kind::of_number(kind).ok_or_else(|| {
            let reason = format!(
                "its tensor `{name}` has the unknown type {kind}, which is of a later llama.cpp or was removed from \
                 it; quantize the model again, as Q4_K_M or Q8_0 for example"
            );
            WeightsError::unsupported(path, reason)
        })?;
        if !seen.insert(name) {
            return Err(wrong("the name appears twice".into()));
        }
        rows.push(Row { name, shape, kind, offset });
    }
    Ok(rows)
}

/// Reads shape, type number and offset.
fn facts(reader: &mut Reader<'_>) -> std::result::Result<(Vec<usize>, u32, u64), String> {
    let rank = reader.u32()?;
    if rank > MAX_AXES {
        return Err(format!("it has {rank} axes; at most {MAX_AXES} are allowed"));
    }
    let mut shape = Vec::new();
    for _ in 0..rank {
        let size = reader.u64()?;
        shape.push(usize::try_from(size).map_err(|_| format!("its size {size} is too large"))?);
    }
    shape.reverse();
    Ok((shape, reader.u32()?, reader.u64()?))
}

/// Returns the positions of the tensors in a file of `len` bytes whose tensor data starts at `start`.
///
/// # Errors
/// [`WeightsError::MalformedTensor`], if a tensor is outside the file, overlaps another tensor, or is not aligned.
pub(super) fn places(
    path: &Path,
    rows: Vec<Row<'_>>,
    start: usize,
    alignment: usize,
    len: usize,
) -> Result<Vec<(String, Entry)>> {
    let mut entries = Vec::with_capacity(rows.len());
    let mut ranges = Vec::with_capacity(rows.len());
    for Row { name, shape, kind, offset } in rows {
        let wrong = |reason: String| WeightsError::malformed_tensor(path, name, reason);
        let bytes = kind.bytes(&shape).map_err(wrong)?;
        if !offset.is_multiple_of(alignment as u64) {
            return Err(wrong(format!(
                "its data starts at {offset}, which is not a multiple of the alignment {alignment}"
            )));
        }
        let first = usize::try_from(offset).ok().and_then(|offset| start.checked_add(offset));
        let range = first.and_then(|first| Some(first..first.checked_add(bytes)?)).filter(|range| range.end <= len);
        let range = range.ok_or_else(|| {
            let reason = format!("its data, {bytes} bytes from {start} + {offset}, ends beyond the file's {len} bytes");
            wrong(reason + " (truncated?)")
        })?;
        let (dtype, form) = match kind {
            Kind::Plain(dtype) => (dtype, Form::Plain),
            Kind::Blocks(kind) => (StoredDtype::F32, Form::Blocks(kind)),
        };
        let entry = Entry { dtype, strides: row_major(&shape), shape, offset: range.start, form };
        entries.push((name.to_string(), entry));
        if !range.is_empty() {
            ranges.push((range.start, range.end, name));
        }
    }
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        Some(pair) => {
            let reason = format!("its data starts at byte {}, within that of `{}`", pair[1].0, pair[0].2);
            Err(WeightsError::malformed_tensor(path, pair[1].2, reason))
        }
        None => Ok(entries),
    }
}
