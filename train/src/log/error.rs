//! Errors of logging.

use std::path::PathBuf;

use grove_files::FileError;

/// Error of logging. The message is one sentence that names the file and a remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Error of the operating system: the disk is full, the directory is read-only, ….
    #[error(transparent)]
    Io(#[from] FileError),

    /// A file exists in place of a required directory.
    #[error("{} is not a directory: give another one, or move the file away", path.display())]
    NotADirectory {
        /// The file.
        path: PathBuf,
    },

    /// A line of a metrics file is not a record. An incomplete last line, left by a killed run, is not an error.
    #[error("{}, line {line}, is not a record: {reason}; delete the line, or move the file away", path.display())]
    BadLine {
        /// The metrics file.
        path: PathBuf,
        /// 1-based line number.
        line: usize,
        /// Description of the problem.
        reason: String,
    },

    /// A value has the name of a field of [`Record`](super::Record).
    #[error("a record of step {step} has a value named `{name}`, which is a field of every record: rename it")]
    ReservedName {
        /// Step of the record.
        step: u64,
        /// The name.
        name: String,
    },

    /// The plot could not be drawn.
    #[error("cannot draw {}: {reason}", path.display())]
    Plot {
        /// The image file.
        path: PathBuf,
        /// Message of the drawing library.
        reason: String,
    },
}

// `main` prints a returned error with `Debug`, so `Debug` shows the message.
impl std::fmt::Debug for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
