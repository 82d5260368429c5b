//! Numbers in files as text, so that every value comes back bit for bit.
//!
//! JSON has no infinity and no NaN, and its readers may round the last bit of a number.

use serde::{Deserialize, Deserializer, Serializer, de::Error};

/// Writes a number in the fewest digits that identify it.
pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:?}"))
}

/// Reads a number that [`serialize`] wrote.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("`{text}` is no number")))
}
