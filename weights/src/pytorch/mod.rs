//! PyTorch's `.bin`, `.pt` and `.pth` files: a zip archive with a pickle that describes tensors, and one stored
//! entry for each tensor's storage.
//!
//! The pickle is interpreted by `candle-core`, which builds plain values and never runs anything. Before it is,
//! [`guard`] walks through it and refuses what would make an interpreter allocate by a claimed length, repeat
//! a value exponentially, or nest without end. Storages are not compressed, so that tensors are read from the map
//! like those of safetensors. Every storage, offset, size and stride is checked against the file.

mod guard;
mod state_dict;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use candle_core::pickle::{Object, Stack};

use crate::entry::{Contents, Entry, element_count, element_size};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;
use crate::view::reaches_inside;
use crate::zip::{Method, Record};

use state_dict::PickledTensor;

/// A tensor that repeats its elements (stride 0) may be larger than its file, up to this many bytes.
const EXPANDED_LIMIT: usize = 1 << 20;

/// How to convert what is not read.
const CONVERT: &str = "convert it in Python: torch.save(torch.load(old, map_location='cpu'), new)";

/// If the content is one of PyTorch's formats from before version 1.6, or under one of PyTorch's endings and
/// nothing that can be read: what to say of it.
pub(crate) fn old_format(bytes: &[u8], extension: &str) -> Option<String> {
    // A safetensors header begins at byte 8 with a brace, and its length may begin with any bytes.
    if bytes.get(8) == Some(&b'{') {
        return None;
    }
    let is_pickle = matches!(bytes, [0x80, 0..=5, ..]);
    let is_tar = bytes.get(257..262) == Some(b"ustar");
    if is_pickle || is_tar {
        Some(format!("it is in PyTorch's format from before version 1.6; {CONVERT}"))
    } else if matches!(extension, "bin" | "pt" | "pth" | "ckpt") {
        Some("it is neither a PyTorch zip archive nor safetensors".into())
    } else {
        None
    }
}

/// Reads and checks the pickle of an archive.
///
/// # Errors
/// [`WeightsError::Malformed`], [`WeightsError::MalformedTensor`] or [`WeightsError::Unsupported`].
pub(crate) fn read_contents(file: &MappedFile, records: &BTreeMap<String, Record>) -> Result<Contents> {
    let malformed = |reason: String| WeightsError::Malformed { file: file.path().into(), reason };
    let bytes = file.bytes();
    let content = |name: &str| match records.get(name) {
        Some(record) if record.method == Method::Stored => Ok(Some(record.range.clone())),
        Some(_) => Err(malformed(format!("its entry {name} is compressed or encrypted, which PyTorch's never are"))),
        None => Ok(None),
    };
    let pickle = records.keys().find(|name| name.ends_with("data.pkl"));
    let pickle = pickle
        .ok_or_else(|| malformed("the archive holds neither data.pkl (PyTorch) nor .npy arrays (numpy)".into()))?;
    let folder = pickle.strip_suffix("data.pkl").unwrap_or_default();
    if let Some(order) = content(&format!("{folder}byteorder"))?
        && bytes.get(order) != Some(b"little")
    {
        let reason = "its numbers are big-endian".into();
        return Err(WeightsError::Unsupported { file: file.path().into(), reason });
    }
    let pickle = content(pickle)?.and_then(|range| bytes.get(range)).unwrap_or_default();
    let object = unpickle(pickle).map_err(malformed)?;
    let tensors =
        state_dict::tensors(object).map_err(|reason| WeightsError::Unsupported { file: file.path().into(), reason })?;

    let mut contents = Contents::default();
    let mut seen = HashSet::new();
    for (name, tensor) in tensors {
        let wrong =
            |reason: String| WeightsError::MalformedTensor { file: file.path().into(), tensor: name.clone(), reason };
        let tensor = tensor.map_err(wrong)?;
        let storage = format!("{folder}data/{}", tensor.storage);
        let range = content(&storage)?.ok_or_else(|| wrong(format!("its storage {storage} is missing")))?;
        let entry = place(&tensor, &range, &name, bytes.len()).map_err(wrong)?;
        if !seen.insert(name.clone()) {
            return Err(wrong("the name appears twice".into()));
        }
        contents.entries.push((name, entry));
    }
    Ok(contents)
}

/// Interprets a pickle that has passed the guard.
fn unpickle(pickle: &[u8]) -> std::result::Result<Object, String> {
    guard::check(pickle)?;
    let broken = |error: candle_core::Error| {
        // With RUST_BACKTRACE set, candle's errors print where they were made; that is no news for a user.
        let error = match error {
            candle_core::Error::WithBacktrace { inner, .. } => *inner,
            error => error,
        };
        format!("its pickle is broken: {error}")
    };
    let mut stack = Stack::empty();
    let mut reader = pickle;
    stack.read_loop(&mut reader).map_err(broken)?;
    stack.finalize().map_err(broken)
}

/// Checks a tensor's numbers against its storage's place in the file.
fn place(
    tensor: &PickledTensor,
    storage: &Range<usize>,
    name: &str,
    file: usize,
) -> std::result::Result<Entry, String> {
    let size = element_size(tensor.dtype, name).map_err(|error| error.to_string())?;
    let offset = tensor.offset.checked_mul(size).and_then(|offset| offset.checked_add(storage.start));
    let entry = Entry {
        dtype: tensor.dtype,
        shape: tensor.shape.clone(),
        strides: tensor.strides.clone(),
        packed: None,
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
            place(&PickledTensor { dtype, shape, strides, offset, storage: "0".into() }, &(100..140), "w", 200)
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
    fn old_formats_are_recognised() {
        assert!(old_format(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P", "bin").is_some_and(|text| text.contains("1.6")));
        assert!(old_format(b"something else", "pth").is_some());
        assert!(old_format(b"something else", "safetensors").is_none());
        // A safetensors header of 0x280 bytes begins like a pickle.
        assert!(old_format(b"\x80\x02\0\0\0\0\0\0{\"a\"", "bin").is_none());
    }
}
