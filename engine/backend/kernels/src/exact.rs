//! Serialisation of numbers as text, so that every value is restored bit for bit: for `#[serde(with = "..")]`.
//!
//! JSON has no infinity and no NaN, and JSON readers may round the last bit of a number.

use serde::{Deserialize, Deserializer, Serializer, de::Error};
use std::{fmt::Debug, str::FromStr};

/// Writes a number with the fewest digits that identify it.
///
/// # Errors
/// Errors of the serializer.
pub fn serialize<T: Debug, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{value:?}"))
}

/// Reads a number written by [`serialize`].
///
/// # Errors
/// If the text is not a number, and errors of the deserializer.
pub fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not a number")))
}
