//! The container before version 1.6 (and with `_use_new_zipfile_serialization=False` since): pickles, then storages.
//!
//! The file contains five pickles: a magic number, the protocol version, a dictionary about the system, the saved
//! object, and the list of the storages' keys. The storages follow in the order of the keys, each as its number of
//! elements in eight bytes and the elements. The position of a storage thus depends on the sizes of all earlier
//! storages, and the size of an element on the object's description of its storage. Only the pickles and the numbers of
//! elements are read; the elements stay in the file until a tensor is read.
//!
//! Source: `_legacy_save` and `_legacy_load` in PyTorch's `torch/serialization.py`, `THPStorage_writeFileRaw` in
//! `torch/csrc/serialization.cpp`.

use std::collections::HashMap;
use std::ops::Range;

use candle_core::pickle::Object;

use crate::contents::Contents;
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;

use super::storage::{PickledStorage, whole};
use super::{contents, state_dict, unpickle};

/// The pickle of 0x1950a86a20f9469cfc6c, without its two protocol bytes. A safetensors file cannot start with it: its
/// header length would be exabytes.
const MAGIC: &[u8] = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.";
/// The only existing version of the protocol.
const VERSION: usize = 1001;
/// Size in bytes of the number of elements before each storage.
const COUNT: usize = 8;

/// A problem with the storage `key`.
struct Fault {
    key: String,
    reason: String,
}

/// Returns true if the content is such a stream.
pub(crate) fn is_stream(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 2 | 3, magic @ ..] if magic.starts_with(MAGIC))
}

/// Reads and checks the pickles, and locates the storages.
pub(crate) fn read_stream(file: &MappedFile) -> Result<Contents> {
    let malformed = |reason: String| WeightsError::malformed(file.path(), reason);
    let unsupported = |reason: String| WeightsError::unsupported(file.path(), reason);
    let bytes = file.bytes();
    let rest = bytes.get(2 + MAGIC.len()..).unwrap_or_default();
    let (version, rest) = unpickle(rest).map_err(malformed)?;
    if whole(&version) != Some(VERSION) {
        return Err(malformed(format!("the version of its protocol is not {VERSION}")));
    }
    let (system, rest) = unpickle(rest).map_err(malformed)?;
    match is_little_endian(&system) {
        Some(true) => {}
        Some(false) => return Err(unsupported("it was written on a big-endian machine".into())),
        None => return Err(malformed("it does not say whether its system was `little_endian`".into())),
    }
    let (object, rest) = unpickle(rest).map_err(malformed)?;
    let mut named = HashMap::new();
    let mut found = collect(&object, &mut named);
    let tensors = state_dict::tensors(object, file.path()).map_err(unsupported)?;
    let (keys, rest) = unpickle(rest).map_err(malformed)?;
    let mut places = HashMap::new();
    if found.is_ok() {
        let keys = keys_of(keys).ok_or_else(|| malformed("its list of storages is not a list of names".into()))?;
        found = locate(keys, &named, bytes, bytes.len() - rest.len(), &mut places);
    }
    // An error in a tensor's description is more precise than an unknown storage.
    let all_understood = tensors.iter().all(|(_, tensor)| tensor.is_ok());
    if let Err(Fault { key, reason }) = found
        && all_understood
    {
        // Names a tensor if one is in that storage; the storage may also be part of an optimizer's state.
        let tensor = tensors.iter().find(|(_, tensor)| tensor.as_ref().is_ok_and(|tensor| tensor.storage.key == key));
        let reason = format!("storage {key}: {reason}");
        return Err(match tensor {
            Some((name, _)) => WeightsError::malformed_tensor(file.path(), name, reason),
            None => malformed(reason),
        });
    }
    contents(file, tensors, |storage| {
        places.get(&storage.key).cloned().ok_or_else(|| format!("its storage {} is missing", storage.key))
    })
}

/// Returns the `little_endian` entry of the system's dictionary; `None` if the entry is missing or contradictory.
fn is_little_endian(system: &Object) -> Option<bool> {
    let Object::Dict(entries) = system else { return None };
    let mut said = entries.iter().filter_map(|(key, value)| match (key, value) {
        (Object::Unicode(key), Object::Bool(value)) if key == "little_endian" => Some(*value),
        _ => None,
    });
    let first = said.next()?;
    said.all(|value| value == first).then_some(first)
}

fn keys_of(object: Object) -> Option<Vec<String>> {
    let Object::List(keys) = object else { return None };
    keys.into_iter().map(|key| key.unicode().ok()).collect()
}

/// Collects the storages that an object describes, at any depth, by key. The guard has limited the depth.
fn collect(object: &Object, named: &mut HashMap<String, PickledStorage>) -> std::result::Result<(), Fault> {
    match object {
        Object::PersistentLoad(id) => {
            let Some(storage) = PickledStorage::read(id) else { return Ok(()) };
            match named.get(&storage.key) {
                // Descriptions of a storage may differ in the described part.
                Some(other) if (&other.class, other.count) != (&storage.class, storage.count) => {
                    let reason = format!(
                        "it is declared as {} elements of a {} and as {} of a {}",
                        other.count, other.class, storage.count, storage.class
                    );
                    Err(Fault { key: storage.key, reason })
                }
                Some(_) => Ok(()),
                None => {
                    named.insert(storage.key.clone(), storage);
                    Ok(())
                }
            }
        }
        Object::Tuple(items) | Object::List(items) => items.iter().try_for_each(|item| collect(item, named)),
        Object::Dict(entries) => entries.iter().try_for_each(|(key, value)| {
            collect(key, named)?;
            collect(value, named)
        }),
        Object::Reduce { callable, args } | Object::Build { callable, args } => {
            collect(callable, named)?;
            collect(args, named)
        }
        _ => Ok(()),
    }
}

/// Visits the storages in order and records the range of the elements of each.
fn locate(
    keys: Vec<String>,
    named: &HashMap<String, PickledStorage>,
    bytes: &[u8],
    mut position: usize,
    places: &mut HashMap<String, Range<usize>>,
) -> std::result::Result<(), Fault> {
    for key in keys {
        let place = match places.contains_key(&key) {
            true => Err("it is listed twice".into()),
            false => match named.get(&key) {
                Some(storage) => place(storage, bytes, position),
                None => Err("it is listed, but not described".into()),
            },
        };
        match place {
            Ok(place) => {
                position = place.end;
                places.insert(key, place);
            }
            Err(reason) => return Err(Fault { key, reason }),
        }
    }
    Ok(())
}

/// Returns the range of the elements of a storage whose number of elements is at `position`.
fn place(storage: &PickledStorage, bytes: &[u8], position: usize) -> std::result::Result<Range<usize>, String> {
    let unit = storage.unit().ok_or_else(|| format!("it is of unknown type {}", storage.class))?;
    let rest = bytes.get(position..).unwrap_or_default();
    let Some((count, rest)) = rest.split_first_chunk::<COUNT>() else {
        return Err("the file ends before it (truncated?)".into());
    };
    let count = i64::from_le_bytes(*count);
    if usize::try_from(count).ok() != Some(storage.count) {
        return Err(format!("its header says {} elements, but its storage has {count}", storage.count));
    }
    match storage.count.checked_mul(unit) {
        Some(size) if size <= rest.len() => {
            let start = position + COUNT;
            Ok(start..start + size)
        }
        _ => Err(format!(
            "its {count} elements of {unit} bytes reach beyond the file, which has only {} more bytes (truncated?)",
            rest.len()
        )),
    }
}
