use std::path::PathBuf;

/// An error in a file.
#[derive(thiserror::Error)]
pub enum FileError {
    /// The operating system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    System {
        /// The operation, such as "open" or "write".
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A model's file could not be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// A JSON file has unexpected contents.
    #[error("{}: {reason}", file.display())]
    Json {
        /// The file.
        file: PathBuf,
        /// The error, with line and column if known.
        reason: String,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for FileError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl FileError {
    /// Returns a function for `map_err` on a `std::io` operation: `.map_err(FileError::io("open", path))`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::System { action, path, source }
    }

    /// Returns a function for `map_err` on a `std::io` operation whose message names the file alone.
    pub fn at(file: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let file = file.into();
        move |source| Self::Io { file, source }
    }

    /// Returns the error for a JSON file with unexpected contents.
    pub fn json(file: impl Into<PathBuf>, reason: impl Into<String>) -> Self {
        Self::Json { file: file.into(), reason: reason.into() }
    }
}
