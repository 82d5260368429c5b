//! Serialisation of values like Python's `json`.

use std::fmt::Write;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

use super::{
    budget::{Budget, ENTRY},
    python::{DEEPEST, number, too_deep},
};

/// Options of `json.dumps`.
#[derive(Debug)]
pub(super) struct Json {
    /// Indentation of each level; `None` for a single line.
    pub(super) indent: Option<String>,
    /// Separator between entries.
    pub(super) comma: String,
    /// Separator between a key and its value.
    pub(super) colon: String,
    /// If true, characters outside ASCII are escaped.
    pub(super) ascii: bool,
    /// If true, keys are sorted.
    pub(super) sorted: bool,
}

impl Json {
    /// Serialises a value like `json.dumps`.
    pub(super) fn dump(&self, value: &Value, budget: &Budget) -> Result<String, Error> {
        let mut out = String::new();
        self.write(value, budget, &mut out, 0)?;
        Ok(out)
    }

    fn write(&self, value: &Value, budget: &Budget, out: &mut String, depth: usize) -> Result<(), Error> {
        if depth > DEEPEST {
            return Err(too_deep());
        }
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => number(value, out, ["Infinity", "NaN"]),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                budget.spend(text.len())?;
                self.quoted(text, out);
            }
            ValueKind::Seq | ValueKind::Iterable => {
                out.push('[');
                let mut any = false;
                for item in value.try_iter()? {
                    self.next(budget, out, any, depth + 1)?;
                    self.write(&item, budget, out, depth + 1)?;
                    any = true;
                }
                self.close(out, any, depth, ']');
            }
            ValueKind::Map => {
                out.push('{');
                let mut entries = Vec::new();
                for key in value.try_iter()? {
                    budget.spend(ENTRY + key.as_str().map_or(0, str::len))?;
                    entries.push((self.key(&key, budget)?, value.get_item(&key)?));
                }
                if self.sorted {
                    entries.sort_by(|a, b| a.0.cmp(&b.0));
                }
                let any = !entries.is_empty();
                for (place, (key, value)) in entries.into_iter().enumerate() {
                    self.next(budget, out, place > 0, depth + 1)?;
                    self.quoted(&key, out);
                    out.push_str(&self.colon);
                    self.write(&value, budget, out, depth + 1)?;
                }
                self.close(out, any, depth, '}');
            }
            kind => {
                let reason = format!("a value of the kind {kind} cannot be written as JSON");
                return Err(Error::new(ErrorKind::BadSerialization, reason));
            }
        }
        Ok(())
    }

    /// Converts a key to a string; Python does so for numbers, booleans and None.
    fn key(&self, key: &Value, budget: &Budget) -> Result<String, Error> {
        match key.kind() {
            ValueKind::String => Ok(key.as_str().unwrap_or_default().to_owned()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => self.dump(key, budget),
            kind => Err(Error::new(
                ErrorKind::BadSerialization,
                format!("a value of the kind {kind} cannot be a key in JSON"),
            )),
        }
    }

    /// Writes the separator before the next entry.
    fn next(&self, budget: &Budget, out: &mut String, comma: bool, depth: usize) -> Result<(), Error> {
        let indent = self.indent.as_ref().map_or(0, |indent| 1 + indent.len() * depth);
        budget.spend(ENTRY + indent + self.comma.len() + self.colon.len())?;
        if comma {
            out.push_str(&self.comma);
        }
        self.line(out, depth);
        Ok(())
    }

    fn close(&self, out: &mut String, any: bool, depth: usize, bracket: char) {
        if any {
            self.line(out, depth);
        }
        out.push(bracket);
    }

    fn line(&self, out: &mut String, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(indent.as_str(), depth));
        }
    }

    fn quoted(&self, text: &str, out: &mut String) {
        out.push('"');
        for letter in text.chars() {
            let _ = match letter {
                '"' => out.write_str("\\\""),
                '\\' => out.write_str("\\\\"),
                '\n' => out.write_str("\\n"),
                '\r' => out.write_str("\\r"),
                '\t' => out.write_str("\\t"),
                '\u{8}' => out.write_str("\\b"),
                '\u{c}' => out.write_str("\\f"),
                letter if letter < ' ' => write!(out, "\\u{:04x}", u32::from(letter)),
                letter if self.ascii && (!letter.is_ascii() || letter == '\u{7f}') => {
                    let mut units = [0; 2];
                    letter.encode_utf16(&mut units).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
                }
                letter => out.write_char(letter),
            };
        }
        out.push('"');
    }
}
