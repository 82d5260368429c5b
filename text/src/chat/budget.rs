//! How much a template may do.
//!
//! minijinja counts instructions, but one instruction can double a text, repeat it a million times, or compare lists
//! that hold each other: forty doublings fill any memory. So everything that makes or reads values pays for their size
//! here.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

/// What every template may make and read together, in bytes.
const BASE: u64 = 64 << 20;

/// And for each byte of what it is given.
const PER_BYTE: u64 = 64;

/// The cost of an entry of a list, which takes memory and time.
pub(super) const ENTRY: usize = 8;

/// What is left.
#[derive(Clone, Debug)]
pub(super) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// For a template that is given this, whose size is returned too.
    pub(super) fn of(input: &Value) -> (Self, usize) {
        let all = Self(Arc::new(AtomicU64::new(u64::MAX)));
        let _ = all.weigh(input, 1);
        let used = u64::MAX - all.0.load(Ordering::Relaxed);
        (Self(Arc::new(AtomicU64::new(BASE + PER_BYTE * used))), usize::try_from(used).unwrap_or(usize::MAX))
    }

    /// Pays for so many bytes.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Error> {
        let take = |left: u64| left.checked_sub(bytes as u64);
        match self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::new(ErrorKind::OutOfFuel, "it makes more text and lists than any conversation needs")),
        }
    }

    /// Pays for reading a value to its depths, as comparing it does; texts are read fast.
    pub(super) fn read(&self, value: &Value) -> Result<(), Error> {
        if value.as_object().is_none() && value.as_str().is_none_or(|text| text.len() < 64) {
            return self.spend(1);
        }
        self.weigh(value, 64)
    }

    /// Pays for making a text of a value to its depths.
    pub(super) fn make(&self, value: &Value) -> Result<(), Error> {
        self.weigh(value, 1)
    }

    /// Pays for a value and all within, texts at `1 / share` of their bytes.
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

    /// Pays for the entries of a list or a map, but not for what is within; for a text no more than for looking at it.
    pub(super) fn count(&self, value: &Value) -> Result<(), Error> {
        let entries = ENTRY * value.as_object().and(value.len()).unwrap_or(0);
        self.spend(match value.kind() {
            ValueKind::String => 1 + value.as_str().map_or(0, str::len) / 64,
            ValueKind::Map => 1 + 4 * entries,
            _ => 1 + entries,
        })
    }

    /// Pays for a list of a value's entries, which are the letters of a text.
    pub(super) fn list(&self, value: &Value) -> Result<(), Error> {
        self.count(value)?;
        self.spend(value.as_str().map_or(0, str::len).saturating_mul(ENTRY))
    }

    /// Turns what makes its entries one by one, such as `a + b` of two lists, into a list, and pays for it. Without, a
    /// chain of such things takes time and stack for all its links whenever it is read.
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
