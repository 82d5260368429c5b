//! Standard output.

use grove::{backend::compile_progress, text::printable::printable};
use std::{
    borrow::Cow,
    io::{IsTerminal, Write},
    sync::atomic::{AtomicBool, Ordering},
};

use crate::Exit;

/// True if the last output to the terminal did not end a line.
pub(crate) static WITHIN_LINE: AtomicBool = AtomicBool::new(false);

/// True if this program's standard output is nobody's concern.
static SILENT: AtomicBool = AtomicBool::new(false);

/// Keeps this program from writing to standard output: another one of the same job does.
pub fn keep_silent() {
    SILENT.store(true, Ordering::Relaxed);
}

/// Writes a piece of text to standard output at once. A terminal gets it without control characters: it may be a model's,
/// or a file's name.
pub fn show(text: &str) -> Result<(), Exit> {
    compile_progress::clear();
    if SILENT.load(Ordering::Relaxed) {
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

/// Writes the one object that scripts read. JSON leaves some control characters as they are; they are escaped too.
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

/// Writes an object for scripts, or a text for people.
pub fn report(json: bool, object: &serde_json::Value, text: &str) -> Result<(), Exit> {
    if json { write_json(object) } else { write_line(text) }
}

/// The reader of our output went away, as `head` does: that is no failure of ours.
fn broken_pipe(error: std::io::Error) -> Exit {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Exit::Failure(format!("standard output: {error}"))
}
