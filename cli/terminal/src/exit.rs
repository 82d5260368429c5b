//! Exit status and error message of a program.

use grove::{
    backend::{
        DeviceError, compile_progress,
        panic_hook::{self, OUT_OF_MEMORY},
    },
    text::printable::error_message,
    train::{TrainError, data::DataError},
};
use std::{
    error::Error,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    sync::atomic::Ordering,
};

use crate::terminal::WITHIN_LINE;

/// Error that ends a program, with exit status 2 (`Usage`) or 1 (`Failure`).
#[derive(Debug)]
pub enum Exit {
    /// Error of the command line, or a missing device.
    Usage(String),
    /// Any other error.
    Failure(String),
}

/// A missing device is a usage error, every other error a failure. The message of a library error also names the command-line
/// options that help.
impl<E: Error + 'static> From<E> for Exit {
    fn from(error: E) -> Self {
        match (&error as &dyn Error).is::<DeviceError>() {
            true => Self::Usage(error.to_string()),
            false => match options(&error) {
                Some(options) => Self::Failure(format!("{error} ({options})")),
                None => Self::Failure(error.to_string()),
            },
        }
    }
}

/// Returns the command-line options that help with an error of the library.
fn options(error: &(dyn Error + 'static)) -> Option<String> {
    let options = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(TrainError::Data(error)), _) => return options(error),
        (Some(TrainError::Model(error)), _) => return options(error),
        (Some(TrainError::OtherSettings { .. }), _) => "--resume-anyway",
        (_, Some(DataError::NoTokenizer)) => "--tokenizer",
        (_, Some(DataError::OutsideModel { .. })) => "--vocab-size, --tokenizer",
        (_, Some(DataError::Delimiter { delimiter: '\t', .. })) => "--delimiter tab",
        (_, Some(DataError::Delimiter { delimiter, .. })) => return Some(format!("--delimiter '{delimiter}'")),
        _ => return None,
    };
    Some(options.to_owned())
}

/// Runs the body of a program, prints its error as one sentence, and returns the exit status. First configures the allocator to
/// keep freed memory, which must happen before threads start.
pub fn finish(body: impl FnOnce() -> Result<(), Exit>) -> ExitCode {
    grove::backend::keep_freed_memory();
    panic_hook::install(say_panic);
    // No state of the body is used after a panic. The panic hook has already printed the message.
    let Ok(ended) = catch_unwind(AssertUnwindSafe(body)) else { return ExitCode::from(1) };
    compile_progress::clear();
    match ended {
        Ok(()) if panic_hook::panicked() => ExitCode::from(1),
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            let (message, status) = match exit {
                Exit::Usage(message) => (message, 2),
                Exit::Failure(message) => (message, 1),
            };
            say_error(&message);
            ExitCode::from(status)
        }
    }
}

/// Converts any error to a failure.
pub fn failure(error: impl std::fmt::Display) -> Exit {
    Exit::Failure(error.to_string())
}

/// Converts any error to a usage error.
pub fn usage(error: impl std::fmt::Display) -> Exit {
    Exit::Usage(error.to_string())
}

/// Prints the message of a panic. If the device is out of memory, suggests the option that needs less.
fn say_panic(sentence: &str) {
    say_error(&sentence.replace(OUT_OF_MEMORY, &format!("{OUT_OF_MEMORY} (--dtype bf16)")));
}

/// Prints an error on its own line.
fn say_error(message: &str) {
    let begin = if WITHIN_LINE.load(Ordering::Relaxed) { "\n" } else { "" };
    eprintln!("{begin}error: {}", error_message(message));
}
