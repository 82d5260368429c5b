//! Standard input.

use std::io::{IsTerminal, Read};

use crate::{Exit, failure};

/// Returns true if standard input is a pipe or a file. Returns false for a terminal and for the null device, which also
/// replaces a closed standard input.
pub fn is_given() -> bool {
    !std::io::stdin().is_terminal() && !is_device()
}

#[cfg(unix)]
fn is_device() -> bool {
    use std::os::{fd::AsFd, unix::fs::FileTypeExt};
    let input = std::io::stdin();
    let Ok(handle) = input.as_fd().try_clone_to_owned() else { return false };
    std::fs::File::from(handle).metadata().is_ok_and(|metadata| metadata.file_type().is_char_device())
}

#[cfg(not(unix))]
fn is_device() -> bool {
    false
}

/// Returns the error for a pipe or file without content.
pub fn is_empty() -> Exit {
    failure("standard input is empty, though a pipe or a file was given; write a text to it, or leave it out")
}

/// Reads all of standard input as text, if it is a pipe or a file.
pub fn text() -> Result<Option<String>, Exit> {
    if !is_given() {
        return Ok(None);
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).map_err(|error| failure(format!("standard input: {error}")))?;
    if text.is_empty() { Err(is_empty()) } else { Ok(Some(text)) }
}
