//! The end of a program: its exit status, and one sentence about what went wrong.

use grove::{
    backend::{
        DeviceError, compile_progress,
        panic_hook::{self, OUT_OF_MEMORY},
    },
    models::ModelError,
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

/// Why a program ends early: `Usage` (exit status 2) is for the command line, `Failure` (1) for everything else.
#[derive(Debug)]
pub enum Exit {
    /// The command line is wrong.
    Usage(String),
    /// Something else went wrong.
    Failure(String),
}

/// A device that is not there is a wrong command line; every other error is a failure. An error of the library gets the options
/// that do what it asks for.
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

/// The options that do what an error of the library asks for.
fn options(error: &(dyn Error + 'static)) -> Option<String> {
    let options = match (error.downcast_ref(), error.downcast_ref(), error.downcast_ref()) {
        (Some(TrainError::Data(error)), ..) => return options(error),
        (Some(TrainError::Model(error)), ..) => return options(error),
        (Some(TrainError::OtherSettings { .. }), ..) => "--resume-anyway",
        (_, Some(DataError::NoTokenizer), _) => "--tokenizer",
        (_, Some(DataError::OutsideModel { .. }), _) => "--vocab-size, --tokenizer",
        (_, Some(DataError::Delimiter { delimiter: '\t', .. }), _) => "--delimiter tab",
        (_, Some(DataError::Delimiter { delimiter, .. }), _) => return Some(format!("--delimiter '{delimiter}'")),
        (_, _, Some(ModelError::NotEnoughMemory { .. })) => "--dtype bf16",
        _ => return None,
    };
    Some(options.to_owned())
}

/// Runs a program's body, prints the one sentence that says what went wrong, and gives the exit status. Before it, while
/// there are no threads, the allocator is told to keep freed memory.
pub fn finish(body: impl FnOnce() -> Result<(), Exit>) -> ExitCode {
    grove::backend::keep_freed_memory();
    panic_hook::install(say_panic);
    // Nothing of the body is used after a panic, which has been told by then.
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

/// Any error, as a failure.
pub fn failure(error: impl std::fmt::Display) -> Exit {
    Exit::Failure(error.to_string())
}

/// Any error, as one of the command line.
pub fn usage(error: impl std::fmt::Display) -> Exit {
    Exit::Usage(error.to_string())
}

/// Prints the sentence about a panic, with the option that takes less of a device's memory where that is full.
fn say_panic(sentence: &str) {
    say_error(&sentence.replace(OUT_OF_MEMORY, &format!("{OUT_OF_MEMORY} (--dtype bf16)")));
}

/// Prints an error, on a line of its own.
fn say_error(message: &str) {
    let begin = if WITHIN_LINE.load(Ordering::Relaxed) { "\n" } else { "" };
    eprintln!("{begin}error: {}", error_message(message));
}
