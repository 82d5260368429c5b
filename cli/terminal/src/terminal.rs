//! Standard output.

use grove::{backend::compile_progress, text::printable::printable};
use std::{
    borrow::Cow,
    io::{IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::Exit;

/// True if the last output to the terminal did not end with a newline.
pub(crate) static WITHIN_LINE: AtomicBool = AtomicBool::new(false);

/// True if this process writes nothing to standard output.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Disables standard output of this process, for ranks other than 0 of a job.
pub fn keep_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Returns true if this process writes nothing to standard output.
pub(crate) fn is_silent() -> bool {
    SILENT.load(Ordering::Relaxed)
}

/// Writes text to standard output and flushes it. Control characters are removed for a terminal, because the text may come from a
/// model or from a file name.
pub fn show(text: &str) -> Result<(), Exit> {
    compile_progress::clear();
    if is_silent() {
        return Ok(());
    }
    let mut stdout = std::io::stdout().lock();
    let text = if stdout.is_terminal() {
        WITHIN_LINE.store(!text.ends_with('\n'), Ordering::Relaxed);
        printable(text)
    } else {
        Cow::Borrowed(text)
    };
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(broken_pipe)
}

/// Writes a line to standard output.
pub fn write_line(line: &str) -> Result<(), Exit> {
    show(&format!("{line}\n"))
}

/// Writes a JSON object on one line. Also escapes the control characters that JSON does not have to escape.
pub fn write_json(value: &serde_json::Value) -> Result<(), Exit> {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        match letter.is_control() {
            true => text.push_str(&format!("\\u{:04x}", u32::from(letter))),
            false => text.push(letter),
        }
    }
    write_line(&text)
}

/// Writes `object` if `json` is true, otherwise `text`.
pub fn report(json: bool, object: &serde_json::Value, text: &str) -> Result<(), Exit> {
    if json { write_json(object) } else { write_line(text) }
}

/// Ends the program without an error if the reader of the output has closed the pipe, as `head` does.
fn broken_pipe(error: std::io::Error) -> Exit {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Exit::Failure(format!("standard output: {error}"))
}
