//! Limit on the work of a template.
//!
//! minijinja counts instructions, but one instruction can double a string, repeat it a million times, or compare
//! lists that contain each other: forty doublings fill any memory. Therefore all operations that create or read
//! values are charged for their size here.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

/// Budget of every template, in bytes created and read.
const BASE: u64 = 64 << 20;

/// Additional budget per byte of the template's input.
const PER_BYTE: u64 = 64;

/// Cost of a list entry, for its memory and time.
pub(super) const ENTRY: usize = 8;

/// The remaining budget, shared by all operations of a rendering.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Creates the budget of a template with this input. Also returns the size of the input.
    pub(super) fn of(input: &Value) -> (Self, usize) {
        let all = Self(Arc::new(AtomicU64::new(u64::MAX)));
        let _ = all.weigh(input, 1);
        let used = u64::MAX - all.0.load(Ordering::Relaxed);
        (Self(Arc::new(AtomicU64::new(BASE + PER_BYTE * used))), usize::try_from(used).unwrap_or(usize::MAX))
    }

    /// Charges a number of bytes. Returns an error if the budget is exhausted.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Error> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::OutOfFuel, "it makes more text and lists than any conversation needs")),
        }
    }

    /// Charges for reading a whole value, as a comparison does. Strings are charged less, since they are read fast.
    pub(super) fn read(&self, value: &Value) -> Result<(), Error> {
        if value.as_object().is_none() && value.as_str().is_none_or(|text| text.len() < 64) {
            return self.spend(1);
        }
        self.weigh(value, 64)
    }

    /// Charges for converting a whole value to a string.
    pub(super) fn make(&self, value: &Value) -> Result<(), Error> {
        self.weigh(value, 1)
    }

    /// Charges for a value and its content, with strings at `1 / share` of their bytes.
    fn weigh(&self, value: &Value, share: usize) -> Result<(), Error> {
        let mut pending = vec![value.clone()];
        while let Some(value) = pending.pop() {
            self.spend(ENTRY + value.as_str().map_or(0, str::len) / share)?;
            match value.kind() {
                ValueKind::Seq | ValueKind::Iterable => {
                    for item in value.try_iter()? {
                        self.spend(1)?;
                        pending.push(item);
                    }
                }
                ValueKind::Map => {
                    for key in value.try_iter()? {
                        self.spend(1)?;
                        pending.push(value.get_item(&key)?);
                        pending.push(key);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Charges for the entries of a list or a map, but not for their content. A string is charged as for reading it.
    pub(super) fn count(&self, value: &Value) -> Result<(), Error> {
        let entries = ENTRY * value.as_object().and(value.len()).unwrap_or(0);
        self.spend(match value.kind() {
            ValueKind::String => 1 + value.as_str().map_or(0, str::len) / 64,
            ValueKind::Map => 1 + 4 * entries,
            _ => 1 + entries,
        })
    }

    /// Charges for a list of a value's entries, which for a string are its characters.
    pub(super) fn list(&self, value: &Value) -> Result<(), Error> {
        self.count(value)?;
        self.spend(value.as_str().map_or(0, str::len).saturating_mul(ENTRY))
    }

    /// Converts a lazy iterable, such as `a + b` of two lists, to a list, and charges for the value. Otherwise every
    /// read of a chain of such values would take time and stack for all of its links.
    pub(super) fn settle(&self, value: Value) -> Result<Value, Error> {
        match value.kind() {
            ValueKind::Iterable => {
                let mut items = Vec::new();
                for item in value.try_iter()? {
                    self.spend(ENTRY)?;
                    items.push(item);
                }
                Ok(Value::from(items))
            }
            ValueKind::String => {
                self.spend(value.as_str().map_or(0, str::len))?;
                Ok(value)
            }
            _ => {
                self.spend(1)?;
                Ok(value)
            }
        }
    }
}
