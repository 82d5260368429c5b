//! Metadata of a GGUF file: hyperparameters, tokenizer, origin.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::Arc;

use super::reader::Reader;
use super::value::{GgufArray, GgufValue, ValueType, check, read};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;

/// Maximum length of the name of a key or a tensor, in bytes: the format's limit for keys.
pub(super) const LONGEST_NAME: u64 = u16::MAX as u64;
/// Minimum size of a key in bytes: the length of its name, its type, and a value.
const SMALLEST_KEY: usize = 8 + 4 + 1;
/// Maximum number of keys; files have about fifty. The limit bounds the memory of the table of keys.
const MAX_KEYS: u64 = 1 << 16;

/// Typed keys and values at the start of a GGUF file, such as `llama.block_count` and `tokenizer.ggml.tokens`,
/// specified in <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
///
/// Values are read from the mapped file on request: a vocabulary of a hundred thousand strings takes no memory until it
/// is read, and then only the memory of references.
#[derive(Debug)]
pub struct GgufMetadata {
    file: Arc<MappedFile>,
    version: u32,
    /// Type and position of each value.
    fields: BTreeMap<String, (ValueType, usize)>,
}

impl GgufMetadata {
    /// Reads and checks `count` keys.
    pub(super) fn read(file: &Arc<MappedFile>, version: u32, count: u64, reader: &mut Reader<'_>) -> Result<Self> {
        let malformed = |reason: String| WeightsError::malformed(file.path(), reason);
        reader.check_count(count, SMALLEST_KEY, MAX_KEYS, "keys").map_err(malformed)?;
        let mut fields = BTreeMap::new();
        for number in 1..=count {
            let key = reader
                .text(LONGEST_NAME)
                .map_err(|reason| malformed(format!("the name of key {number} of {count}: {reason}")))?;
            let wrong = |reason: String| malformed(format!("key `{key}`: {reason}"));
            let kind = ValueType::read(reader).map_err(wrong)?;
            let place = reader.position();
            check(reader, kind).map_err(wrong)?;
            match fields.entry(key.to_string()) {
                btree_map::Entry::Vacant(entry) => drop(entry.insert((kind, place))),
                btree_map::Entry::Occupied(_) => return Err(wrong("it appears twice".into())),
            }
        }
        Ok(Self { file: file.clone(), version, fields })
    }

    /// Returns the version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Returns the value of a key, of any type; `None` if the key is missing.
    pub fn get(&self, key: &str) -> Option<GgufValue<'_>> {
        self.value(*self.fields.get(key)?)
    }

    /// Returns a string; `None`, here and in the following methods, if the key is missing or of another type.
    pub fn string(&self, key: &str) -> Option<&str> {
        self.get(key)?.string()
    }

    /// Returns an integer of any width, signed or unsigned; `None` if it is negative.
    pub fn integer(&self, key: &str) -> Option<u64> {
        self.get(key)?.integer()
    }

    /// Returns a 32-bit or 64-bit float. A 32-bit float is widened, and `as f32` restores it exactly.
    pub fn float(&self, key: &str) -> Option<f64> {
        self.get(key)?.float()
    }

    /// Returns a boolean.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.get(key)?.boolean()
    }

    /// Returns an array, whose values are read one at a time.
    pub fn array(&self, key: &str) -> Option<GgufArray<'_>> {
        self.get(key)?.array()
    }

    /// Returns an array of strings, borrowed from the file.
    pub fn strings(&self, key: &str) -> Option<Vec<&str>> {
        self.array(key)?.all(GgufValue::string)
    }

    /// Returns an array of integers; `None` if one is negative.
    pub fn integers(&self, key: &str) -> Option<Vec<u64>> {
        self.array(key)?.all(GgufValue::integer)
    }

    /// Returns an array of floats.
    pub fn floats(&self, key: &str) -> Option<Vec<f64>> {
        self.array(key)?.all(GgufValue::float)
    }

    /// Iterates over all keys, sorted, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, GgufValue<'_>)> {
        self.fields.iter().filter_map(|(key, field)| Some((key.as_str(), self.value(*field)?)))
    }

    /// Returns `None` if the file has changed since it was opened and checked.
    fn value(&self, (kind, place): (ValueType, usize)) -> Option<GgufValue<'_>> {
        read(&mut Reader::new(self.file.bytes(), place), kind).ok()
    }
}
