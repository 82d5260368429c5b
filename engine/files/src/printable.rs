//! Untrusted text on a terminal: without control characters, and of limited length.
//!
//! Escape sequences in a model's tokens, in names of files and tensors or in the text that an error quotes could move
//! the cursor, change the window's title, or hide earlier output.

use std::borrow::Cow;

/// Maximum length of a displayed line of an error, in characters.
const LONGEST_LINE: usize = 600;

/// Maximum number of displayed lines of an error. Reports of a checkpoint's missing tensors have many.
const MAX_LINES: usize = 200;

/// Returns true for characters that a terminal may interpret: control characters (C0, DEL and C1) other than line feed
/// and tab.
fn is_command(letter: char) -> bool {
    letter.is_control() && letter != '\n' && letter != '\t'
}

/// Removes control characters that a terminal may interpret. Line feeds and tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    match text.contains(is_command) {
        false => Cow::Borrowed(text),
        true => Cow::Owned(text.replace(is_command, "")),
    }
}

/// Returns the start of an untrusted text, for an error that quotes it: at most `longest` characters in one line,
/// followed by the number of omitted characters. Control characters are escaped.
pub fn excerpt(text: &str, longest: usize) -> String {
    let mut shown: String = text.chars().take(longest).flat_map(shown).collect();
    let left = text.chars().skip(longest).count();
    if left > 0 {
        shown.push_str(&format!("… ({left} more characters)"));
    }
    shown
}

fn shown(letter: char) -> impl Iterator<Item = char> {
    let escaped = letter.is_control().then(|| letter.escape_default());
    let itself = escaped.is_none().then_some(letter);
    escaped.into_iter().flatten().chain(itself)
}

/// Formats an error's message for display: without control characters, long lines shortened, and with a limited number
/// of lines.
pub fn error_message(message: &str) -> String {
    let mut lines = message.lines();
    let shown: Vec<String> = lines.by_ref().take(MAX_LINES).map(short_line).collect();
    let left = lines.count();
    let more = if left > 0 { format!("\n… ({left} more lines)") } else { String::new() };
    shown.join("\n") + &more
}

/// Omits the middle of a line that is too long: errors name the place at the start, and the remedy at the end.
fn short_line(line: &str) -> String {
    let line = printable(line);
    let length = line.chars().count();
    if length <= LONGEST_LINE {
        return line.into_owned();
    }
    let half = LONGEST_LINE / 2;
    let first: String = line.chars().take(half).collect();
    let last: String = line.chars().skip(length - half).collect();
    format!("{first}… ({} characters) …{last}", length - 2 * half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_terminal_escape_sequences() {
        assert!(matches!(printable("Größe\n\tαβ 🌲"), Cow::Borrowed("Größe\n\tαβ 🌲")));
        assert_eq!(printable("a\u{1b}[31mred\u{1b}[0m\r\u{8}\u{7f}\u{9b}2J\u{0}b\n"), "a[31mred[0m2Jb\n");
        assert_eq!(printable("\u{1b}]0;title\u{7}"), "]0;title");
    }

    #[test]
    fn quotations_are_short() {
        assert_eq!(excerpt("the river", 20), "the river");
        assert_eq!(excerpt("line\nline \u{1b}[2J é", 20), "line\\nline \\u{1b}[2J é");
        assert_eq!(excerpt("ääääää", 4), "ääää… (2 more characters)");
        assert_eq!(excerpt("", 4), "");
    }

    #[test]
    fn errors_keep_their_beginning_and_their_end() {
        assert_eq!(error_message("one\ntwo"), "one\ntwo");
        let long = format!("model.json: unknown \"{}\"; leave it out", "x\u{1b}".repeat(10_000));
        let shown = error_message(&long);
        assert!(shown.starts_with("model.json: unknown \"xxx") && shown.ends_with("xxx\"; leave it out"), "{shown}");
        assert!(shown.chars().count() < 700 && !shown.contains('\u{1b}'), "{shown}");
        let many = error_message(&"line\n".repeat(1000));
        assert_eq!((many.lines().count(), many.lines().last()), (201, Some("… (800 more lines)")));
    }
}
