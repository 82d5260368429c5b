//! JSON as written by other programs.

use serde::de::DeserializeOwned;
use std::borrow::Cow;

/// Names that Python's `json` module writes for numbers that JSON does not support.
const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "-Infinity"];

/// Parses JSON as written by Python's `json` module. `NaN`, `Infinity` and `-Infinity`, which are not valid JSON,
/// become strings: they are harmless in a field that is not read, and invalid in a field of numbers. A byte order mark
/// is skipped.
///
/// ```
/// let text = br#"{"time_step_limit": [0.0, Infinity], "layers": 2}"#;
/// let fields: serde_json::Value = grove_files::parse_json(text)?;
/// assert_eq!(fields["time_step_limit"][1], "Infinity");
/// # Ok::<(), String>(())
/// ```
///
/// # Errors
/// A sentence with the key, the expected value, and the line.
pub fn parse_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let text = quoted(bytes);
    let mut reader = serde_json::Deserializer::from_slice(&text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(described)?;
    reader.end().map_err(|error| error.to_string())?;
    Ok(value)
}

/// Reads a value from parsed JSON.
///
/// # Errors
/// A sentence with the key and the expected value.
pub fn from_json<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(described)
}

/// Formats an error, with its key if it concerns a value.
fn described(error: serde_path_to_error::Error<serde_json::Error>) -> String {
    let path = error.path().to_string();
    let error = error.into_inner();
    if path == "." || error.is_syntax() || error.is_eof() { error.to_string() } else { format!("`{path}`: {error}") }
}

/// Returns the text with quotes around the names in place of numbers.
fn quoted(bytes: &[u8]) -> Cow<'_, [u8]> {
    let name_at = |i: usize| NO_NUMBERS.iter().find(|name| bytes[i..].starts_with(name.as_bytes()));
    let (mut out, mut copied, mut inside, mut i) = (vec![], 0, false, 0);
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if inside => i += 1,
            b'"' => inside = !inside,
            b'N' | b'I' | b'-' if !inside => {
                if let Some(name) = name_at(i) {
                    out.extend_from_slice(&bytes[copied..i]);
                    out.extend_from_slice(format!("\"{name}\"").as_bytes());
                    i += name.len();
                    copied = i;
                    continue;
                }
            }
            _ => {}
        }
        i += 1;
    }
    if copied == 0 {
        return Cow::Borrowed(bytes);
    }
    out.extend_from_slice(&bytes[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn nan_and_infinity_become_strings() {
        let text = br#"{"a": NaN, "b": [-Infinity, Infinity, -1], "c": "NaN \"Infinity", "d\\": Infinity}"#;
        let expected =
            json!({"a": "NaN", "b": ["-Infinity", "Infinity", -1], "c": "NaN \"Infinity", "d\\": "Infinity"});
        assert_eq!(parse_json::<Value>(text), Ok(expected));
        assert_eq!(parse_json::<Value>(b"\xef\xbb\xbf[1]"), Ok(json!([1])));
        for broken in ["NaNa", "[Infinity", "{} {}", "\"Infinity", "{NaN: 1", ""] {
            assert!(parse_json::<Value>(broken.as_bytes()).is_err(), "{broken}");
        }
    }

    #[test]
    fn errors_name_the_key() {
        #[derive(serde::Deserialize, Debug)]
        struct Config {
            _layers: usize,
            _rope: Option<Rope>,
        }
        #[derive(serde::Deserialize, Debug)]
        struct Rope {
            _factor: f64,
        }
        let says = |text: &str| parse_json::<Config>(text.as_bytes()).unwrap_err();
        assert!(says(r#"{"_layers": "two"}"#).starts_with("`_layers`: invalid type: string \"two\""));
        assert!(says(r#"{"_layers": 1, "_rope": {"_factor": Infinity}}"#).contains("`_rope._factor`"));
        let value = json!({"_layers": 1, "_rope": {"_factor": "x"}});
        assert!(from_json::<Config>(value).unwrap_err().starts_with("`_rope._factor`: invalid type"));
        assert!(says(r#"{"_layers": 1, }"#).starts_with("trailing comma"), "{}", says(r#"{"_layers": 1, }"#));
    }
}
