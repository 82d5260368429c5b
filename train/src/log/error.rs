//! Errors of logging.

use std::path::PathBuf;

use grove_files::FileError;

/// An error of this module. Each names the file it is about, in one sentence that a person can act on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused: the disk is full, the directory is read-only, ….
    #[error(transparent)]
    Io(#[from] FileError),

    /// A directory is needed where there is a file.
    #[error("{} is not a directory: give another one, or move the file away", path.display())]
    NotADirectory {
        /// The file.
        path: PathBuf,
    },

    /// A line of a metrics file is no record. The last line may be: a run that was killed may have torn it.
    #[error("{}, line {line}, is not a record: {reason}; delete the line, or move the file away", path.display())]
    BadLine {
        /// The metrics file.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// The problem in it.
        reason: String,
    },

    /// A value has the name of one of a record's own fields.
    #[error("a record of step {step} has a value named `{name}`, which is a field of every record: rename it")]
    ReservedName {
        /// The record's step.
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

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for LogError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl LogError {
    /// For `map_err` on an operation of `std::io`: `.map_err(LogError::io("open", path))`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let named = FileError::io(action, path);
        move |source| named(source).into()
    }
}
