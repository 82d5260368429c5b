//! Log records.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Serialize,
    de::{Error, Unexpected},
};
use serde_json::Value;

/// Mean training loss since the previous record.
pub const TRAIN_LOSS: &str = "train/loss";
/// Mean loss over the evaluation data.
pub const EVAL_LOSS: &str = "eval/loss";
/// Learning rate of the last update.
pub const LEARNING_RATE: &str = "learning_rate";
/// Global norm of the gradient, before clipping.
pub const GRAD_NORM: &str = "grad_norm";
/// Number of steps skipped so far because their loss or gradient was not finite.
pub const SKIPPED_STEPS: &str = "skipped_steps";
/// Training throughput in tokens per second. [`Progress`](crate::log::Progress) shows any value whose name ends in
/// `_per_second`.
pub const TOKENS_PER_SECOND: &str = "tokens_per_second";

/// Log record: the time in the run, and named values.
///
/// The JSON form is one flat object, `{"step":20,"epoch":0.5,"seconds":1.2,"train/loss":2.31}`. JSON has no non-finite
/// numbers; they are the strings `"NaN"`, `"Infinity"` and `"-Infinity"`, which Python's `float` and JavaScript's
/// `Number` parse. `null` is read as NaN.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Record {
    /// Number of updates so far: 1 after the first.
    pub step: u64,
    /// Number of passes over the training data so far, including the fraction of the current one.
    #[serde(with = "number")]
    pub epoch: f64,
    /// Seconds since the start of the run, summed over resumes.
    #[serde(with = "number")]
    pub seconds: f64,
    /// Named values: [`TRAIN_LOSS`], [`EVAL_LOSS`], …. A name must not be that of a field above.
    #[serde(flatten, with = "numbers")]
    pub values: BTreeMap<String, f64>,
}

impl Record {
    /// Creates a record without values.
    pub fn new(step: u64, epoch: f64, seconds: f64) -> Self {
        Self { step, epoch, seconds, values: BTreeMap::new() }
    }

    /// Adds a value, replacing an earlier one of the same name.
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Self {
        self.values.insert(name.into(), value);
        self
    }

    /// Returns the value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    /// Returns the name of a value that is also the name of a field, which makes the JSON ambiguous.
    pub(crate) fn reserved_name(&self) -> Option<&'static str> {
        ["step", "epoch", "seconds"].into_iter().find(|name| self.values.contains_key(*name))
    }
}

/// A number in JSON, finite or not.
struct Number(f64);

impl Serialize for Number {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value if value.is_finite() => serializer.serialize_f64(value),
            value if value.is_nan() => serializer.serialize_str("NaN"),
            value => serializer.serialize_str(if value > 0.0 { "Infinity" } else { "-Infinity" }),
        }
    }
}

/// Description of a number in JSON, for errors.
const EXPECTED: &str = "a number, \"NaN\", \"Infinity\" or \"-Infinity\"";

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Null => Ok(Self(f64::NAN)),
            Value::Number(number) => Ok(Self(number.as_f64().unwrap_or(f64::NAN))),
            Value::String(text) => match &*text {
                "NaN" => Ok(Self(f64::NAN)),
                "Infinity" => Ok(Self(f64::INFINITY)),
                "-Infinity" => Ok(Self(f64::NEG_INFINITY)),
                text => Err(D::Error::invalid_value(Unexpected::Str(text), &EXPECTED)),
            },
            Value::Bool(value) => Err(D::Error::invalid_type(Unexpected::Bool(value), &EXPECTED)),
            Value::Array(_) => Err(D::Error::invalid_type(Unexpected::Seq, &EXPECTED)),
            Value::Object(_) => Err(D::Error::invalid_type(Unexpected::Map, &EXPECTED)),
        }
    }
}

/// Serde format of a number.
mod number {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        Number(*value).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        Number::deserialize(deserializer).map(|number| number.0)
    }
}

/// Serde format of named values.
mod numbers {
    use super::*;

    pub(super) fn serialize<S: serde::Serializer>(
        values: &BTreeMap<String, f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(values.iter().map(|(name, value)| (name, Number(*value))))
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<String, f64>, D::Error> {
        let values = BTreeMap::<String, Number>::deserialize(deserializer)?;
        Ok(values.into_iter().map(|(name, number)| (name, number.0)).collect())
    }
}
