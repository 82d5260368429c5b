//! numpy's `.npz` and `.npy` files: a zip archive of arrays, and one array.
//!
//! Source: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>. Arrays of `numpy.savez` are read
//! from the memory map, column-major ones through strides. Arrays of `numpy.savez_compressed`, and big-endian ones, are
//! unpacked into memory when they are read. (`candle_core::npy` allocates as many elements as a header claims, and
//! supports neither column-major order nor booleans.)

mod dictionary;
mod header;
mod write;

use std::collections::BTreeMap;

use crate::contents::Contents;
use crate::entry::{Entry, Form, StoredDtype, check_size, column_major, row_major};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;
use crate::packed::{Packed, head};
use crate::zip::{Method, Record};

use header::Header;
pub use write::write_npy;

/// Extension of an archive's arrays, which is not part of their names.
const ENDING: &str = ".npy";

/// Returns true if an archive is numpy's: it contains arrays and is not PyTorch's.
pub(crate) fn is_npz(records: &BTreeMap<String, Record>, extension: &str) -> bool {
    let any = |ending| records.keys().any(|name| name.ends_with(ending));
    !any("data.pkl") && (extension == "npz" || any(ENDING))
}

/// Returns true if the content is an `.npy`, a single array.
pub(crate) fn is_array(bytes: &[u8]) -> bool {
    bytes.starts_with(header::MAGIC)
}

/// Reads and checks the headers of an archive's arrays.
pub(crate) fn read_archive(file: &MappedFile, records: &BTreeMap<String, Record>) -> Result<Contents> {
    let mut contents = Contents::default();
    for (path, record) in records {
        // A directory entry, as `zip -r` writes it.
        if path.ends_with('/') && record.size == 0 {
            continue;
        }
        let Some(name) = path.strip_suffix(ENDING) else {
            let reason = format!("its entry `{path}` is not a {ENDING} array; take it out of the archive");
            return Err(WeightsError::unsupported(file.path(), reason));
        };
        contents.entries.push((name.to_string(), entry(file, name, record)?));
    }
    Ok(contents)
}

/// Reads and checks the header of an `.npy`. The array is named after the file, without its extension.
pub(crate) fn read_single(file: &MappedFile) -> Result<Contents> {
    let size = file.bytes().len();
    let whole = Record { range: 0..size, method: Method::Stored, size, checksum: 0 };
    let name = file.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let entry = entry(file, &name, &whole)?;
    Ok(Contents { entries: vec![(name, entry)], ..Contents::default() })
}

/// Reads an array's header and returns the position of its data.
fn entry(file: &MappedFile, name: &str, record: &Record) -> Result<Entry> {
    let wrong = |reason: String| WeightsError::malformed_tensor(file.path(), name, reason);
    let start = head(record, file.bytes(), header::LONGEST).map_err(wrong)?;
    let header = Header::read(&start).map_err(wrong)?;
    let unsupported = |reason| WeightsError::unsupported(file.path(), format!("its array `{name}` {reason}"));
    let number = header.number().map_err(unsupported)?;
    let data =
        record.size.checked_sub(header.length).ok_or_else(|| wrong("its header is longer than its entry".into()))?;
    check_size(number.dtype, &header.shape, data).map_err(wrong)?;
    let form = match record.method {
        Method::Stored if number.reversed == 1 => Form::Plain,
        _ => Form::Packed(Packed { record: record.clone(), reversed: number.reversed }),
    };
    Ok(Entry {
        dtype: number.dtype,
        strides: if header.is_fortran { column_major(&header.shape) } else { row_major(&header.shape) },
        shape: header.shape,
        offset: if form == Form::Plain { record.range.start + header.length } else { header.length },
        form,
    })
}

/// Element type of an array.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    dtype: StoredDtype,
    /// Size in bytes of big-endian values; 1 if the bytes are in native order.
    reversed: usize,
}
