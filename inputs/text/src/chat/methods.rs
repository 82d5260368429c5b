//! Python's methods of strings, maps and lists: those of `minijinja-contrib`, and those that it lacks or implements
//! differently.

use minijinja::{
    Error, ErrorKind, FormatStyle, State, Value,
    value::{Kwargs, Rest, ValueKind, from_args},
};
use minijinja_contrib::pycompat;

use super::{
    budget::{Budget, ENTRY},
    python,
};

type Result<T> = std::result::Result<T, Error>;

/// Whitespace in Python: that of Unicode, and four separators.
fn is_space(letter: char) -> bool {
    letter.is_whitespace() || ('\u{1C}'..='\u{1F}').contains(&letter)
}

/// Removes whitespace, or the given characters, from the ends of a string.
pub(super) fn strip<'t>(text: &'t str, letters: Option<&str>, left: bool, right: bool) -> &'t str {
    let cut = |letter: char| letters.map_or(is_space(letter), |letters| letters.contains(letter));
    let text = if left { text.trim_start_matches(cut) } else { text };
    if right { text.trim_end_matches(cut) } else { text }
}

/// `text.replace(from, to, most)`, charged before the string is created.
pub(super) fn replace(text: &str, from: &str, to: &str, most: Option<i64>, budget: &Budget) -> Result<Value> {
    let found = if from.is_empty() { text.chars().count() + 1 } else { text.matches(from).count() };
    let most = most.and_then(|most| usize::try_from(most).ok()).unwrap_or(usize::MAX).min(found);
    budget.spend(text.len().saturating_add(to.len().saturating_mul(most)))?;
    Ok(Value::from(text.replacen(from, to, most)))
}

/// `glue.join(items)`.
pub(super) fn join(glue: &str, items: &Value, budget: &Budget) -> Result<Value> {
    let mut out = String::new();
    for (place, item) in items.try_iter()?.enumerate() {
        budget.spend(1 + glue.len())?;
        out.push_str(if place > 0 { glue } else { "" });
        out.push_str(&python::text(&item, budget)?);
    }
    Ok(Value::from(out))
}

/// `text.split(separator, most)`, or `rsplit`, which counts from the end.
fn split(text: &str, separator: Option<&str>, most: i64, from_end: bool) -> Result<Vec<Value>> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let mut parts: Vec<&str> = Vec::new();
    match separator {
        Some("") => return Err(Error::new(ErrorKind::InvalidOperation, "the separator of a split is empty")),
        Some(separator) if from_end => parts.extend(text.rsplitn(most.saturating_add(1), separator)),
        Some(separator) => parts.extend(text.splitn(most.saturating_add(1), separator)),
        None => {
            let mut rest = strip(text, None, !from_end, from_end);
            while !rest.is_empty() {
                let end = if from_end { rest.rfind(is_space) } else { rest.find(is_space) };
                let Some(end) = end.filter(|_| parts.len() < most) else {
                    parts.push(rest);
                    break;
                };
                let letter = rest[end..].chars().next().map_or(0, char::len_utf8);
                let (part, other) =
                    if from_end { (&rest[end + letter..], &rest[..end]) } else { (&rest[..end], &rest[end..]) };
                parts.push(part);
                rest = strip(other, None, !from_end, from_end);
            }
        }
    }
    if from_end {
        parts.reverse();
    }
    Ok(parts.into_iter().map(Value::from).collect())
}

/// Splits into lines like Python's `splitlines`.
fn split_lines(text: &str, keep: bool) -> Vec<Value> {
    let ends = |letter: char| {
        matches!(letter, '\n' | '\r' | '\u{B}' | '\u{C}' | '\u{1C}'..='\u{1E}' | '\u{85}' | '\u{2028}' | '\u{2029}')
    };
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(ends) {
        let length = rest[at..].chars().next().map_or(0, char::len_utf8);
        let end = at + if rest[at..].starts_with("\r\n") { 2 } else { length };
        lines.push(Value::from(&rest[..if keep { end } else { at }]));
        rest = &rest[end..];
    }
    if !rest.is_empty() {
        lines.push(Value::from(rest));
    }
    lines
}

/// Returns true if a pattern cannot create long strings: no width of four digits, and no width from an argument.
fn is_modest(pattern: &str) -> bool {
    let (mut digits, mut open) = (0, 0);
    for letter in pattern.replace("{{", "").replace("}}", "").chars() {
        digits = if letter.is_ascii_digit() { digits + 1 } else { 0 };
        match letter {
            '{' => open += 1,
            '}' => open = 0,
            _ => {}
        }
        if digits > 3 || open > 1 || letter == '*' {
            return false;
        }
    }
    true
}

/// `text.format(…)`, or the same in the style of printf.
fn format(style: FormatStyle, pattern: &str, args: &[Value], budget: &Budget) -> Result<Value> {
    if !is_modest(pattern) {
        return Err(Error::new(ErrorKind::InvalidOperation, "this pattern is too much for a chat template"));
    }
    for _ in 0..pattern.matches(['{', '%']).count() {
        budget.spend(1000)?;
        for arg in args {
            budget.make(arg)?;
        }
    }
    minijinja::format_filter(style, pattern, args).map(Value::from)
}

/// `text % (…)` and the filter `format`: formats a text with arguments, as printf does.
pub(super) fn printf(pattern: &str, args: &[Value], budget: &Budget) -> Result<Value> {
    let as_text = |value: &Value| match value.kind() {
        ValueKind::Number | ValueKind::Bool | ValueKind::String => Ok(value.clone()),
        _ => python::text(value, budget).map(Value::from),
    };
    // `'%(name)s' % map` has the map's values as arguments.
    let named = pattern.contains("%(") && matches!(args, [map] if map.kind() == ValueKind::Map);
    let args: Vec<Value> = match (named, args) {
        (true, [map]) => {
            budget.list(map)?;
            let entry = |key: Value| Ok((key.clone(), as_text(&map.get_item(&key)?)?));
            vec![map.try_iter()?.map(entry).collect::<Result<Vec<_>>>()?.into_iter().collect()]
        }
        _ => args.iter().map(as_text).collect::<Result<_>>()?,
    };
    let text = format(FormatStyle::Printf, pattern, &args, budget)?;
    let conversions = pattern.replace("%%", "").matches('%').count();
    match named || args.len() <= conversions {
        true => Ok(text),
        false => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("the text takes {conversions} values, but gets {}", args.len()),
        )),
    }
}

/// Calls a method that minijinja itself does not have.
pub(super) fn call(state: &State, value: &Value, method: &str, args: &[Value], budget: &Budget) -> Result<Value> {
    for arg in args {
        budget.read(arg)?;
    }
    budget.count(value)?;
    let result = match value.as_str() {
        Some(text) => of_text(state, value, text, method, args, budget)?,
        None => pycompat::unknown_method_callback(state, value, method, args)?,
    };
    budget.settle(result)
}

fn of_text(state: &State, value: &Value, text: &str, method: &str, args: &[Value], budget: &Budget) -> Result<Value> {
    let halves = |parts: [&str; 3]| Value::from(parts.map(Value::from).to_vec());
    Ok(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (letters,): (Option<&str>,) = from_args(args)?;
            Value::from(strip(text, letters, method != "rstrip", method != "lstrip"))
        }
        "split" | "rsplit" => {
            let (separator, most, kwargs): (Option<&str>, Option<i64>, Kwargs) = from_args(args)?;
            let separator = separator.map_or_else(|| kwargs.get("sep"), |separator| Ok(Some(separator)))?;
            let most = most.map_or_else(|| kwargs.get("maxsplit"), |most| Ok(Some(most)))?;
            kwargs.assert_all_used()?;
            budget.spend(text.len().saturating_mul(ENTRY))?;
            Value::from(split(text, separator, most.unwrap_or(-1), method == "rsplit")?)
        }
        "splitlines" => {
            let (keep, kwargs): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.map_or_else(|| kwargs.get("keepends"), |keep| Ok(Some(keep)))?;
            kwargs.assert_all_used()?;
            budget.spend(text.len().saturating_mul(ENTRY))?;
            Value::from(split_lines(text, keep.unwrap_or(false)))
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = method == "partition";
            match if first { text.split_once(separator) } else { text.rsplit_once(separator) } {
                Some((before, after)) => halves([before, separator, after]),
                None if first => halves([text, "", ""]),
                None => halves(["", "", text]),
            }
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(prefix).unwrap_or(text))
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(suffix).unwrap_or(text))
        }
        "replace" => {
            let (from, to, most): (&str, &str, Option<i64>) = from_args(args)?;
            replace(text, from, to, most, budget)?
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            join(text, items, budget)?
        }
        "count" => {
            let (part,): (&str,) = from_args(args)?;
            Value::from(if part.is_empty() { text.chars().count() + 1 } else { text.matches(part).count() })
        }
        // Positions in a string count characters.
        "find" | "rfind" | "index" => {
            let (part,): (&str,) = from_args(args)?;
            match if method == "rfind" { text.rfind(part) } else { text.find(part) } {
                Some(at) => Value::from(text[..at].chars().count()),
                None if method == "index" => {
                    return Err(Error::new(ErrorKind::InvalidOperation, "the text does not contain the other"));
                }
                None => Value::from(-1),
            }
        }
        "format" => format(FormatStyle::StrFormat, text, args, budget)?,
        _ if text.is_empty() && method.starts_with("is") && method != "isascii" => Value::from(false),
        _ => pycompat::unknown_method_callback(state, value, method, args)?,
    })
}

/// The filter that replaces methods of maps.
pub(super) fn of_map(state: &State, args: Rest<Value>, budget: &Budget) -> Result<Value> {
    let [value, name, args @ ..] = args.as_slice() else { return Err(Error::from(ErrorKind::MissingArgument)) };
    let name = name.as_str().unwrap_or_default();
    if value.kind() == ValueKind::Map {
        return call(state, value, name, args, budget);
    }
    value.call_method(state, name, args)
}
