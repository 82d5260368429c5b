//! The directory of a zip archive, as far as PyTorch's and numpy's files require: position and compression of each
//! entry.
//!
//! Source: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3. Entries are parsed in place, without allocations by a claimed
//! count or length (the `zip` crate reserves space for as many entries as the directory claims). Checksums are not
//! compared here. Those of stored entries are never compared, so that their pages are touched only when they are read.

use std::collections::BTreeMap;
use std::ops::Range;

/// Size of the fixed part of the end of central directory record, in bytes.
const END: usize = 22;
/// Size of the zip64 locator, which directly precedes the end of central directory record, in bytes.
const LOCATOR: usize = 20;
/// Size of the fixed part of a central directory entry, in bytes.
const ENTRY: usize = 46;
/// Size of the fixed part of the header before an entry's data, in bytes.
const LOCAL: usize = 30;
/// Maximum length of the archive comment, in bytes.
const LONGEST_COMMENT: usize = 0xffff;
/// Identifier of the extra field of 64-bit sizes.
const ZIP64: u64 = 1;

/// An entry of the archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Range of the entry's stored bytes in the file.
    pub(crate) range: Range<usize>,
    /// Compression of the bytes.
    pub(crate) method: Method,
    /// Size of the content in bytes, as claimed by the directory.
    pub(crate) size: usize,
    /// CRC-32 of the content, as claimed by the directory.
    pub(crate) checksum: u32,
}

/// Compression of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// Neither compressed nor encrypted: `size` bytes of content.
    Stored,
    /// Compressed by deflate.
    Deflated,
    /// Any other compression, or encryption.
    Other,
}

/// Returns true if the content is a zip archive. An archive without entries starts with its end record.
pub(crate) fn is_archive(bytes: &[u8]) -> bool {
    bytes.starts_with(b"PK\x03\x04") || bytes.starts_with(b"PK\x05\x06")
}

/// Returns all entries by name.
///
/// # Errors
/// Returns the reason, if the directory or an entry is malformed or extends beyond the file.
pub(crate) fn records(bytes: &[u8]) -> Result<BTreeMap<String, Record>, String> {
    let directory = directory(bytes).ok_or("its zip directory is missing or broken (truncated?)")?;
    let mut rest = directory;
    let mut records = BTreeMap::new();
    while !rest.is_empty() {
        let (name, record, later) =
            record(bytes, rest).ok_or("an entry of its zip directory is broken (truncated?)")?;
        if records.contains_key(&name) {
            return Err(format!("its zip directory lists {name} twice"));
        }
        records.insert(name, record);
        rest = later;
    }
    Ok(records)
}

/// Reads a little-endian integer of at most eight bytes; `None` beyond the end.
fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut number = [0; 8];
    number.get_mut(..size)?.copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(number))
}

fn part(bytes: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

/// Returns the bytes of the central directory.
fn directory(bytes: &[u8]) -> Option<&[u8]> {
    let earliest = bytes.len().saturating_sub(END + LONGEST_COMMENT);
    let end = (earliest..=bytes.len().checked_sub(END)?).rev().find(|&at| {
        bytes[at..].starts_with(b"PK\x05\x06") && number(bytes, at + 20, 2) == Some((bytes.len() - at - END) as u64)
    })?;
    let (mut length, mut start) = (number(bytes, end + 12, 4)?, number(bytes, end + 16, 4)?);
    if let Some(locator) = end.checked_sub(LOCATOR)
        && bytes[locator..].starts_with(b"PK\x06\x07")
    {
        let long = part(bytes, number(bytes, locator + 8, 8)?, 56)?;
        if !long.starts_with(b"PK\x06\x06") {
            return None;
        }
        (length, start) = (number(long, 40, 8)?, number(long, 48, 8)?);
    }
    part(bytes, start, length)
}

/// Parses the first entry of `rest`. Also returns the bytes after it.
fn record<'a>(bytes: &[u8], rest: &'a [u8]) -> Option<(String, Record, &'a [u8])> {
    if !rest.starts_with(b"PK\x01\x02") {
        return None;
    }
    let (flags, method) = (number(rest, 8, 2)?, number(rest, 10, 2)?);
    let checksum = u32::try_from(number(rest, 16, 4)?).ok()?;
    let (mut stored, mut size, mut start) = (number(rest, 20, 4)?, number(rest, 24, 4)?, number(rest, 42, 4)?);
    let (name, extra, comment) = (number(rest, 28, 2)?, number(rest, 30, 2)?, number(rest, 32, 2)?);
    let mut extra_fields = part(rest, ENTRY as u64 + name, extra)?;
    while extra_fields.len() >= 4 {
        let (id, length) = (number(extra_fields, 0, 2)?, number(extra_fields, 2, 2)?);
        let field = part(extra_fields, 4, length)?;
        if id == ZIP64 {
            // The field contains only the values that do not fit into 32 bits, in this order.
            let too_large = [&mut size, &mut stored, &mut start].into_iter().filter(|value| **value == 0xffff_ffff);
            for (index, value) in too_large.enumerate() {
                *value = number(field, index * 8, 8)?;
            }
        }
        extra_fields = extra_fields.get(4 + field.len()..)?;
    }
    let text = std::str::from_utf8(part(rest, ENTRY as u64, name)?).ok()?;
    let local = part(bytes, start, LOCAL as u64)?;
    if !local.starts_with(b"PK\x03\x04") {
        return None;
    }
    let data = start.checked_add(LOCAL as u64)?.checked_add(number(local, 26, 2)? + number(local, 28, 2)?)?;
    let data = usize::try_from(data).ok()?;
    let range = data..data.checked_add(usize::try_from(stored).ok()?)?;
    // Bit 0: encrypted.
    let method = match method {
        0 if flags & 1 == 0 && stored == size => Method::Stored,
        8 if flags & 1 == 0 => Method::Deflated,
        _ => Method::Other,
    };
    let later = rest.get(ENTRY + usize::try_from(name + extra + comment).ok()?..)?;
    let record = Record { range, method, size: usize::try_from(size).ok()?, checksum };
    (record.range.end <= bytes.len()).then(|| (text.to_string(), record, later))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an archive with one stored entry; if `long`, its directory has the 64-bit form.
    fn archive(name: &str, content: &[u8], long: bool) -> Vec<u8> {
        let number = |value: usize, size: usize| value.to_le_bytes()[..size].to_vec();
        let mut bytes =
            [b"PK\x03\x04".to_vec(), vec![0; 14], number(content.len(), 4), number(content.len(), 4)].concat();
        bytes.extend([number(name.len(), 2), number(3, 2), name.into(), vec![7; 3], content.to_vec()].concat());
        let start = bytes.len();
        let size = if long { usize::MAX } else { content.len() };
        let extra = if long {
            [number(1, 2), number(16, 2), number(content.len(), 8), number(content.len(), 8)].concat()
        } else {
            Vec::new()
        };
        bytes.extend(
            [b"PK\x01\x02".to_vec(), vec![0; 16], number(size, 4), number(size, 4), number(name.len(), 2)].concat(),
        );
        bytes.extend([number(extra.len(), 2), vec![0; 14], name.into(), extra].concat());
        let (length, end) = (bytes.len() - start, bytes.len());
        if long {
            bytes.extend([b"PK\x06\x06".to_vec(), vec![0; 36], number(length, 8), number(start, 8)].concat());
            bytes.extend([b"PK\x06\x07".to_vec(), vec![0; 4], number(end, 8), vec![0; 4]].concat());
        }
        let (length, start) = if long { (usize::MAX, usize::MAX) } else { (length, start) };
        bytes.extend(
            [b"PK\x05\x06".to_vec(), vec![0; 8], number(length, 4), number(start, 4), number(2, 2), vec![9; 2]]
                .concat(),
        );
        bytes
    }

    #[test]
    fn finds_entries_of_both_forms() {
        for long in [false, true] {
            let bytes = archive("a/data.pkl", b"content", long);
            let records = records(&bytes).expect("valid");
            let record = &records["a/data.pkl"];
            assert_eq!(&bytes[record.range.clone()], b"content");
            assert_eq!((record.method, record.size), (Method::Stored, 7));
        }
    }

    #[test]
    fn every_truncation_is_an_error() {
        for long in [false, true] {
            let bytes = archive("a/data.pkl", b"content", long);
            assert!((0..bytes.len()).all(|length| records(&bytes[..length]).is_err()));
        }
    }
}
