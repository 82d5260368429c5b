//! PyTorch's `.bin`, `.pt` and `.pth` files: a pickle that describes tensors, and the tensors' storages. Since version
//! 1.6 the container is a zip archive ([`archive`]); before that, it was a stream ([`stream`]).
//!
//! The pickle is interpreted by `candle-core`, which builds plain values and never runs code. Before that, [`guard`]
//! validates it: it rejects pickles that would make an interpreter allocate a claimed length, duplicate a value
//! exponentially, or nest without limit. Storages are not compressed, so tensors are read from the memory map like
//! those of safetensors. Every storage, offset, size and stride is checked against the file.

mod archive;
mod guard;
mod state_dict;
mod storage;
mod stream;

use std::collections::HashSet;
use std::ops::Range;

use candle_core::pickle::{Object, Stack};

use crate::contents::Contents;
use crate::entry::{Entry, Form, element_count};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;
use crate::view::reaches_inside;

pub(crate) use archive::read_archive;
pub(crate) use stream::{is_stream, read_stream};

use state_dict::{Named, PickledTensor};
use storage::PickledStorage;

/// Maximum size in bytes of a tensor with repeated elements (stride 0) that is larger than its file.
const EXPANDED_LIMIT: usize = 1 << 20;

/// Advice on converting an unsupported file.
const CONVERT: &str = "convert it in Python: torch.save(torch.load(old, map_location='cpu'), new)";

/// Returns the reason for rejecting content in an unsupported format of PyTorch, or in no known format despite one of
/// PyTorch's extensions; `None` otherwise.
pub(crate) fn refusal(bytes: &[u8], extension: &str) -> Option<String> {
    // A safetensors header starts with a brace at byte 8, and the length before it may have any bytes.
    if bytes.get(8) == Some(&b'{') {
        return None;
    }
    if bytes.get(257..262) == Some(b"ustar") {
        Some(format!(
            "it is in PyTorch's oldest format, a tar archive; {CONVERT} (with weights_only=False, which runs what \
             the file says: only if you trust it)"
        ))
    } else if matches!(bytes, [0x80, 0..=5, ..]) {
        Some(format!(
            "it is a Python pickle, and not as torch.save writes it with its default pickle protocol 2; {CONVERT}"
        ))
    } else if matches!(extension, "bin" | "pt" | "pth" | "ckpt") {
        Some("it is neither one of PyTorch's files nor safetensors".into())
    } else {
        None
    }
}

/// Interprets the pickle at the start of the bytes. Also returns the bytes after it.
fn unpickle(bytes: &[u8]) -> std::result::Result<(Object, &[u8]), String> {
    let (mut pickle, rest) = bytes.split_at(guard::check(bytes)?);
    let broken = |error: candle_core::Error| {
        // With RUST_BACKTRACE set, candle's errors include a backtrace, which is useless to a user.
        let error = match error {
            candle_core::Error::WithBacktrace { inner, .. } => *inner,
            error => error,
        };
        // candle's message quotes the offending value, which may be the whole file.
        let shown: String = error.to_string().chars().take(500).collect();
        format!("its pickle is broken: {shown}")
    };
    let mut stack = Stack::empty();
    stack.read_loop(&mut pickle).map_err(broken)?;
    Ok((stack.finalize().map_err(broken)?, rest))
}

/// Checks every tensor against its storage. `find` returns the range of a storage in the file.
fn contents(
    file: &MappedFile,
    tensors: Named,
    find: impl Fn(&PickledStorage) -> std::result::Result<Range<usize>, String>,
) -> Result<Contents> {
    let mut contents = Contents::default();
    let mut seen = HashSet::new();
    for (name, tensor) in tensors {
        let wrong = |reason: String| WeightsError::malformed_tensor(file.path(), &name, reason);
        let tensor = tensor.map_err(wrong)?;
        let storage = find(&tensor.storage).and_then(|whole| part(&tensor.storage, whole)).map_err(wrong)?;
        let entry = place(&tensor, &storage, file.bytes().len()).map_err(wrong)?;
        if !seen.insert(name.clone()) {
            return Err(wrong("the name appears twice".into()));
        }
        contents.entries.push((name, entry));
    }
    Ok(contents)
}

/// Returns the range of the described part of a storage, from the range of the whole.
fn part(storage: &PickledStorage, whole: Range<usize>) -> std::result::Result<Range<usize>, String> {
    let Some((offset, count)) = storage.part else { return Ok(whole) };
    let unit = storage.unit().ok_or_else(|| format!("its storage is of unknown type {}", storage.class))?;
    let start = offset.checked_mul(unit).and_then(|bytes| whole.start.checked_add(bytes));
    let end = count.checked_mul(unit).and_then(|bytes| start?.checked_add(bytes));
    match (start, end) {
        (Some(start), Some(end)) if end <= whole.end => Ok(start..end),
        _ => Err(format!(
            "its storage claims {count} elements from element {offset} of another, which has {} bytes",
            whole.len()
        )),
    }
}

/// Checks a tensor's shape, strides and offset against its storage's range in the file.
fn place(tensor: &PickledTensor, storage: &Range<usize>, file: usize) -> std::result::Result<Entry, String> {
    let size = tensor.dtype.bitsize() / 8;
    let offset = tensor.offset.checked_mul(size).and_then(|offset| offset.checked_add(storage.start));
    let entry = Entry {
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        strides: tensor.strides.clone(),
        form: Form::Plain,
        offset: offset.ok_or("its offset is too large")?,
    };
    if !reaches_inside(&entry, size, storage.end) {
        return Err(format!(
            "shape {:?} with strides {:?} from element {} reaches beyond its storage of {} bytes",
            entry.shape,
            entry.strides,
            tensor.offset,
            storage.len()
        ));
    }
    let bytes = element_count(&entry.shape).and_then(|count| count.checked_mul(size));
    if bytes.is_none_or(|bytes| bytes > file.max(EXPANDED_LIMIT)) {
        return Err(format!("shape {:?} repeats elements until it is larger than the file", entry.shape));
    }
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::StoredDtype;

    #[test]
    fn numbers_that_reach_outside_the_storage_are_refused() {
        // A storage of 40 bytes at 100, in a file of 200.
        let placed = |shape: &[usize], strides: &[usize], offset| {
            let (shape, strides, dtype) = (shape.into(), strides.into(), StoredDtype::F32);
            let storage = PickledStorage { class: "FloatStorage".into(), key: "0".into(), count: 10, part: None };
            place(&PickledTensor { dtype, shape, strides, offset, storage }, &(100..140), 200)
        };
        assert_eq!(placed(&[2, 5], &[5, 1], 0).map(|entry| entry.offset), Ok(100));
        assert_eq!(placed(&[3], &[0], 9).map(|entry| entry.offset), Ok(136));
        for (shape, strides, offset, word) in [
            (&[2, 5][..], &[5, 1][..], 1, "beyond its storage"),
            (&[2, 5], &[6, 1], 0, "beyond its storage"),
            (&[2], &[1, 1], 0, "beyond its storage"),
            (&[2], &[usize::MAX], 0, "beyond its storage"),
            (&[1], &[1], usize::MAX / 2, "offset"),
            (&[1 << 40], &[0], 0, "larger than the file"),
            (&[1 << 40, 1 << 40], &[0, 0], 0, "beyond its storage"),
        ] {
            let reason = placed(shape, strides, offset).expect_err(word);
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn parts_of_storages_lie_inside_them() {
        let of = |part| {
            let storage = PickledStorage { class: "HalfStorage".into(), key: "0".into(), count: 20, part };
            super::part(&storage, 100..140)
        };
        assert_eq!(of(None), Ok(100..140));
        assert_eq!(of(Some((3, 17))), Ok(106..140));
        for (offset, count) in [(3, 18), (21, 0), (usize::MAX, 1), (1, usize::MAX), (usize::MAX / 2, 0)] {
            assert!(of(Some((offset, count))).is_err(), "{count} from {offset}");
        }
    }

    #[test]
    fn recognises_unsupported_formats() {
        assert!(refusal(b"\x80\x04\x95\0\0\0\0\0", "bin").is_some_and(|text| text.contains("protocol 2")));
        assert!(refusal(b"something else", "pth").is_some());
        assert!(refusal(b"something else", "safetensors").is_none());
        let mut tar = vec![0; 512];
        tar[257..262].copy_from_slice(b"ustar");
        assert!(refusal(&tar, "pt").is_some_and(|text| text.contains("tar archive")));
        // A safetensors header of 0x280 bytes starts like a pickle.
        assert!(refusal(b"\x80\x02\0\0\0\0\0\0{\"a\"", "bin").is_none());
    }
}
