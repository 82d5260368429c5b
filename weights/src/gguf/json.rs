//! Metadata as JSON, for comparison and for messages.

use serde_json::{Map, Value, json};

use super::{GgufMetadata, GgufValue};

impl GgufMetadata {
    /// Returns metadata as JSON. `own` returns the name of a key, or `None` for keys that do not belong to it.
    pub fn as_json(&self, own: impl Fn(&str) -> Option<String>) -> Map<String, Value> {
        self.iter().filter_map(|(key, value)| Some((own(key)?, value.as_json()))).collect()
    }
}

impl GgufValue<'_> {
    /// Returns the value as JSON. The content of lists is not read.
    pub fn as_json(&self) -> Value {
        match self {
            Self::Unsigned(number) => (*number).into(),
            Self::Signed(number) => (*number).into(),
            Self::Float(number) => match shortest(*number) {
                number if number.is_finite() => number.into(),
                number => number.to_string().into(),
            },
            Self::Boolean(flag) => (*flag).into(),
            Self::String(text) => (*text).into(),
            Self::Array(list) if list.is_empty() => json!([]),
            Self::Array(_) => "a list".into(),
        }
    }
}

/// Returns the shortest decimal of a number that was a 32-bit float: 0.1 instead of 0.10000000149011612.
fn shortest(number: f64) -> f64 {
    match f64::from(number as f32) == number {
        true => (number as f32).to_string().parse().unwrap_or(number),
        false => number,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_compared_as_they_are_written() {
        assert_eq!(GgufValue::Float(f64::from(0.1_f32)).as_json().to_string(), "0.1");
        assert_eq!(GgufValue::Float(1.0).as_json().to_string(), "1.0");
        assert_eq!(GgufValue::Float(f64::NAN).as_json().to_string(), "\"NaN\"");
        assert_eq!(GgufValue::Signed(-1).as_json().to_string(), "-1");
    }
}
