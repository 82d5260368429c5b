//! Errors of image decoding and preprocessing.

use std::path::{Path, PathBuf};

use grove_files::FileError;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, ImageError>;

/// Error of this crate. The message names the file or the option, the problem and the remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The operating system refused an operation.
    #[error(transparent)]
    Io(#[from] FileError),

    /// The file is not an image: it is empty, a directory, a web page, a git-lfs pointer, ….
    #[error("{} is not an image: {found}", file.display())]
    NotAnImage {
        /// The file.
        file: PathBuf,
        /// The kind of file found and the remedy.
        found: String,
    },

    /// The file is an image in an unsupported format.
    #[error("{} cannot be read: {reason}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The reason, and how to convert the file.
        reason: String,
    },

    /// The file ends too early or violates its format.
    #[error("{} is damaged: {reason}; copy or download it again, or leave it out", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The violated rule.
        reason: String,
    },

    /// The file or its image exceeds the [`Limits`](crate::Limits).
    #[error("{} is too large: {reason}; raise the limit if you trust the file", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The limit and the actual size.
        reason: String,
    },

    /// A preprocessor's configuration is invalid.
    #[error("{} is not a usable preprocessor configuration: {reason}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The entry and its problem.
        reason: String,
    },

    /// An option, a field or an argument has an invalid value.
    #[error("{0}")]
    BadOption(String),

    /// A directory of images does not have one folder for each class.
    #[error("{} cannot be read as one folder for each class: {reason}", directory.display())]
    Folder {
        /// The directory.
        directory: PathBuf,
        /// The problem and the remedy.
        reason: String,
    },

    /// A data set file violates its format.
    #[error("{} is not a {format} file: {reason}", file.display())]
    Dataset {
        /// The file.
        file: PathBuf,
        /// The expected format.
        format: &'static str,
        /// The violated rule.
        reason: String,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl ImageError {
    pub(crate) fn config(file: &Path, reason: impl Into<String>) -> Self {
        Self::Config { file: file.to_owned(), reason: reason.into() }
    }

    pub(crate) fn dataset(file: &Path, format: &'static str, reason: impl Into<String>) -> Self {
        Self::Dataset { file: file.to_owned(), format, reason: reason.into() }
    }
}
