//! File format of schedules: the variants of [`Schedule`], and plain numbers for constants.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::Value;

use super::Schedule;

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Constant(value) => value.serialize(serializer),
            schedule => Self::serialize(schedule, serializer),
        }
    }
}

// The errors of serde's `untagged` do not say which field is invalid.
impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.as_f64() {
            Some(number) => Ok(Self::Constant(number)),
            None => Self::deserialize(value).map_err(D::Error::custom),
        }
    }
}
