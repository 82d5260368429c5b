//! The end of a program: its exit status, and one sentence about what went wrong.

use grove::{backend::DeviceError, text::printable::error_message};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
};

use crate::{compiling, panics, terminal};

/// Why a program ends early: `Usage` (exit status 2) is for the command line, `Failure` (1) for everything else.
#[derive(Debug)]
pub enum Exit {
    /// The command line is wrong.
    Usage(String),
    /// Something else went wrong.
    Failure(String),
}

impl From<DeviceError> for Exit {
    fn from(error: DeviceError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Runs a program's body, prints the one sentence that says what went wrong, and gives the exit status. Before it, while
/// there are no threads, the allocator is told to keep freed memory.
pub fn finish(body: impl FnOnce() -> Result<(), Exit>) -> ExitCode {
    grove::backend::keep_freed_memory();
    panics::tell_in_one_sentence();
    // Nothing of the body is used after a panic, which has been told by then.
    let Ok(ended) = catch_unwind(AssertUnwindSafe(body)) else { return ExitCode::from(1) };
    compiling::clear();
    match ended {
        Ok(()) if panics::any() => ExitCode::from(1),
        Ok(()) => ExitCode::SUCCESS,
        Err(Exit::Usage(message)) => {
            say_error(&message);
            ExitCode::from(2)
        }
        Err(Exit::Failure(message)) => {
            say_error(&message);
            ExitCode::from(1)
        }
    }
}

/// For `map_err`: what went wrong, as a failure.
pub fn failure(error: impl std::fmt::Display) -> Exit {
    Exit::Failure(error.to_string())
}

/// Prints an error, on a line of its own.
pub(crate) fn say_error(message: &str) {
    let begin = if terminal::is_within_line() { "\n" } else { "" };
    eprintln!("{begin}error: {}", error_message(message));
}
