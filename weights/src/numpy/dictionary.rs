//! The dictionary in an array's header: the subset of Python's literals that numpy writes, parsed without recursion.

/// A value of the dictionary.
pub(super) enum Literal<'a> {
    Text(&'a str),
    Truth(bool),
    Numbers(Vec<usize>),
    /// List of fields; its content is not parsed.
    List,
}

/// Returns the values of `descr`, `fortran_order` and `shape`; `None` unless the text has exactly these three keys,
/// each once.
pub(super) fn dictionary(text: &str) -> Option<[Literal<'_>; 3]> {
    let mut rest = text.trim_start().strip_prefix('{')?.trim_start();
    let (mut descr, mut order, mut shape) = (None, None, None);
    while !rest.starts_with('}') {
        let (Literal::Text(key), later) = literal(rest)? else { return None };
        let (value, later) = literal(later.trim_start().strip_prefix(':')?.trim_start())?;
        let place = match key {
            "descr" => &mut descr,
            "fortran_order" => &mut order,
            "shape" => &mut shape,
            _ => return None,
        };
        if place.replace(value).is_some() {
            return None;
        }
        let later = later.trim_start();
        rest = match later.strip_prefix(',') {
            Some(later) => later.trim_start(),
            None if later.starts_with('}') => later,
            None => return None,
        };
    }
    rest[1..].trim().is_empty().then_some([descr?, order?, shape?])
}

/// Parses the literal at the start of the text. Also returns the remaining text.
fn literal(text: &str) -> Option<(Literal<'_>, &str)> {
    if let Some(later) = text.strip_prefix("True") {
        return Some((Literal::Truth(true), later));
    }
    if let Some(later) = text.strip_prefix("False") {
        return Some((Literal::Truth(false), later));
    }
    match text.chars().next()? {
        quote @ ('\'' | '"') => {
            let (inner, later) = text[1..].split_once(quote)?;
            (!inner.contains('\\')).then_some((Literal::Text(inner), later))
        }
        '(' => {
            let (inner, later) = text[1..].split_once(')')?;
            Some((Literal::Numbers(tuple(inner)?), later))
        }
        '[' => Some((Literal::List, after_list(text)?)),
        _ => None,
    }
}

/// Parses the sizes between a tuple's parentheses.
fn tuple(inner: &str) -> Option<Vec<usize>> {
    let inner = inner.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    // In Python, `(3)` is not a tuple; `(3,)` is.
    let inner = match inner.strip_suffix(',') {
        Some(inner) => inner,
        None => inner.contains(',').then_some(inner)?,
    };
    let size = |text: &str| {
        // Python 2 wrote `3L`.
        let digits = text.trim().trim_end_matches('L');
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    inner.split(',').map(size).collect()
}

/// Returns the text after the list at its start.
fn after_list(text: &str) -> Option<&str> {
    let (mut depth, mut quote) = (0usize, None);
    for (position, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(letter),
            (None, '[') => depth += 1,
            (None, ']') => {
                depth -= 1;
                if depth == 0 {
                    return text.get(position + 1..);
                }
            }
            (None, _) => {}
        }
    }
    None
}
