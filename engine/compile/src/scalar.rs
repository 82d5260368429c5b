//! Serialisation of scalars as text, which preserves NaN, infinities, the last bit and 64-bit integers.

use burn_ir::ScalarIr;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

#[derive(Serialize, Deserialize)]
enum Text {
    Float(String),
    Int(String),
    #[serde(rename = "UInt")]
    Unsigned(String),
    Bool(bool),
}

pub fn serialize<S: Serializer>(value: &ScalarIr, serializer: S) -> Result<S::Ok, S::Error> {
    let text = match value {
        ScalarIr::Float(x) if x.is_nan() => Text::Float(format!("NaN:{:016x}", x.to_bits())),
        ScalarIr::Float(x) => Text::Float(format!("{x:?}")),
        ScalarIr::Int(x) => Text::Int(x.to_string()),
        ScalarIr::UInt(x) => Text::Unsigned(x.to_string()),
        ScalarIr::Bool(x) => Text::Bool(*x),
    };
    text.serialize(serializer)
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ScalarIr, D::Error> {
    let wrong = |text: &str| D::Error::custom(format!("`{text}` is not a number"));
    Ok(match Text::deserialize(deserializer)? {
        Text::Float(text) => ScalarIr::Float(match text.strip_prefix("NaN:") {
            Some(bits) => f64::from_bits(u64::from_str_radix(bits, 16).map_err(|_| wrong(&text))?),
            None => text.parse().map_err(|_| wrong(&text))?,
        }),
        Text::Int(text) => ScalarIr::Int(text.parse().map_err(|_| wrong(&text))?),
        Text::Unsigned(text) => ScalarIr::UInt(text.parse().map_err(|_| wrong(&text))?),
        Text::Bool(x) => ScalarIr::Bool(x),
    })
}
