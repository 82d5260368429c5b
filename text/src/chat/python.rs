//! Values as Python writes them: `True` and `['a', 1.0]`.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

use super::budget::{Budget, ENTRY};

/// How deep lists may lie within lists where they are written.
pub(super) const DEEPEST: usize = 100;

/// What `str` makes of a value.
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

/// What `repr` makes of a value.
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

/// That lists lie too deep to be written.
pub(super) fn too_deep() -> Error {
    Error::new(ErrorKind::InvalidOperation, "lists lie too deep within lists to be written")
}

/// A number; floats with the fewest digits, as both languages do, and Python's exponents. What is infinite and what is
/// no number have other names in JSON.
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

/// Whether Python shows a letter within quotes as it is. Letters that Unicode has not named yet count as shown.
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
