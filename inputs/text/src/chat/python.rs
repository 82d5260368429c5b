//! Formatting of values like Python: `True` and `['a', 1.0]`.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

use super::budget::{Budget, ENTRY};

/// Maximum nesting depth of lists that can be formatted.
pub(super) const DEEPEST: usize = 100;

/// Formats a value like `str`.
pub(super) fn text(value: &Value, budget: &Budget) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None if value.is_undefined() => {}
        None => repr(value, budget, &mut out, 0)?,
    }
    budget.spend(out.len())?;
    Ok(out)
}

/// Formats a value like `repr`.
fn repr(value: &Value, budget: &Budget, out: &mut String, depth: usize) -> Result<(), Error> {
    budget.spend(ENTRY)?;
    if depth > DEEPEST {
        return Err(too_deep());
    }
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(value, out, ["inf", "nan"]),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default();
            budget.spend(text.len())?;
            quoted(text, out);
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (place, item) in value.try_iter()?.enumerate() {
                out.push_str(if place > 0 { ", " } else { "" });
                repr(&item, budget, out, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (place, key) in value.try_iter()?.enumerate() {
                out.push_str(if place > 0 { ", " } else { "" });
                repr(&key, budget, out, depth + 1)?;
                out.push_str(": ");
                repr(&value.get_item(&key)?, budget, out, depth + 1)?;
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// Returns the error for lists that are nested too deep to be formatted.
pub(super) fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, "lists are nested too deeply")
}

/// Formats a number. Floats have the fewest digits, as in both languages, and Python's exponents. The names of
/// infinity and NaN differ in JSON, so they are arguments.
pub(super) fn number(value: &Value, out: &mut String, [infinite, undefined]: [&str; 2]) {
    let float = f64::try_from(value.clone()).ok().filter(|_| !value.is_integer());
    let _ = match float {
        None => write!(out, "{value}"),
        Some(float) if float.is_nan() => write!(out, "{undefined}"),
        Some(float) if float.is_infinite() => write!(out, "{}{infinite}", if float < 0.0 { "-" } else { "" }),
        Some(float) => {
            let digits = format!("{float:?}");
            match digits.split_once('e') {
                None => write!(out, "{digits}"),
                Some((digits, exponent)) => {
                    let exponent: i32 = exponent.parse().unwrap_or_default();
                    write!(out, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
                }
            }
        }
    };
}

/// Returns true if Python does not escape a character in quotes. Characters that are not assigned in Unicode count as
/// not escaped.
fn is_shown(letter: char) -> bool {
    let hidden = letter.is_control()
        || letter.is_whitespace()
        || matches!(letter, '\u{AD}' | '\u{61C}' | '\u{180E}' | '\u{FEFF}' | '\u{E000}'..='\u{F8FF}' | '\u{F0000}'..)
        || matches!(letter, '\u{200B}'..='\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}');
    letter == ' ' || !hidden
}

fn quoted(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for letter in text.chars() {
        let _ = match letter {
            '\\' => out.write_str("\\\\"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            letter if letter == quote => write!(out, "\\{letter}"),
            letter if is_shown(letter) => out.write_char(letter),
            letter => match u32::from(letter) {
                code @ 0..=0xFF => write!(out, "\\x{code:02x}"),
                code @ 0x100..=0xFFFF => write!(out, "\\u{code:04x}"),
                code => write!(out, "\\U{code:08x}"),
            },
        };
    }
    out.push(quote);
}
