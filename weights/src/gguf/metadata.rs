//! What a GGUF file says of its model: hyperparameters, tokenizer, origin.

use std::collections::BTreeMap;
use std::collections::btree_map;
use std::sync::Arc;

use super::reader::Reader;
use super::value::{GgufArray, GgufValue, ValueType, check, read};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;

/// Longest name, in bytes, of a key or a tensor: the format's own limit for keys.
pub(super) const LONGEST_NAME: u64 = u16::MAX as u64;
/// Fewest bytes of a key: the length of its name, its type, and a value.
const SMALLEST_KEY: usize = 8 + 4 + 1;
/// Files have about fifty. Beyond this a table of keys would take much more room than the keys themselves.
const MOST_KEYS: u64 = 1 << 16;

/// The typed keys and values with which a GGUF file begins, such as `llama.block_count` and
/// `tokenizer.ggml.tokens`. The keys and what they may hold are listed in
/// <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.
///
/// Values are read from the mapped file when they are asked for: a vocabulary of a hundred thousand strings takes
/// no memory until then, and then only that of the references to them.
#[derive(Debug)]
pub struct GgufMetadata {
    file: Arc<MappedFile>,
    version: u32,
    /// Type of each value, and where it lies.
    fields: BTreeMap<String, (ValueType, usize)>,
}

impl GgufMetadata {
    /// Reads and checks `count` keys.
    ///
    /// # Errors
    /// [`WeightsError::Malformed`], with the key.
    pub(super) fn read(file: &Arc<MappedFile>, version: u32, count: u64, reader: &mut Reader<'_>) -> Result<Self> {
        let malformed = |reason| WeightsError::Malformed { file: file.path().into(), reason };
        reader.check_count(count, SMALLEST_KEY, MOST_KEYS, "keys").map_err(malformed)?;
        let mut fields = BTreeMap::new();
        for number in 1..=count {
            let key = reader
                .text(LONGEST_NAME)
                .map_err(|reason| malformed(format!("the name of key {number} of {count}: {reason}")))?;
            let wrong = |reason| malformed(format!("key `{key}`: {reason}"));
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

    /// The format's version, 2 or 3.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The value of a key, of whatever type.
    pub fn get(&self, key: &str) -> Option<GgufValue<'_>> {
        self.value(*self.fields.get(key)?)
    }

    /// A text.
    pub fn string(&self, key: &str) -> Option<&str> {
        self.get(key)?.string()
    }

    /// A whole number of any width, signed or not; `None` if it is negative.
    pub fn integer(&self, key: &str) -> Option<u64> {
        self.get(key)?.integer()
    }

    /// A float of 32 or 64 bits. Of 32 bits it is widened, and `as f32` gives it back exactly.
    pub fn float(&self, key: &str) -> Option<f64> {
        self.get(key)?.float()
    }

    /// A boolean.
    pub fn boolean(&self, key: &str) -> Option<bool> {
        self.get(key)?.boolean()
    }

    /// An array, whose values are read one after another.
    pub fn array(&self, key: &str) -> Option<GgufArray<'_>> {
        self.get(key)?.array()
    }

    /// An array of texts, which lie in the file.
    pub fn strings(&self, key: &str) -> Option<Vec<&str>> {
        self.array(key)?.all(GgufValue::string)
    }

    /// An array of whole numbers; `None` if one is negative.
    pub fn integers(&self, key: &str) -> Option<Vec<u64>> {
        self.array(key)?.all(GgufValue::integer)
    }

    /// An array of floats.
    pub fn floats(&self, key: &str) -> Option<Vec<f64>> {
        self.array(key)?.all(GgufValue::float)
    }

    /// All keys, sorted, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, GgufValue<'_>)> {
        self.fields.iter().filter_map(|(key, field)| Some((key.as_str(), self.value(*field)?)))
    }

    /// `None` if the file has changed since it was opened, and no longer holds there what was checked.
    fn value(&self, (kind, place): (ValueType, usize)) -> Option<GgufValue<'_>> {
        read(&mut Reader::new(self.file.bytes(), place), kind).ok()
    }
}
