//! What can go wrong between a file and the numbers that a model reads.

use std::path::{Path, PathBuf};

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, ImageError>;

/// An error of this crate. Each names the file or the option it is about, what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done: "open", "write", ….
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The file is something else than a picture: empty, a directory, a web page, a git-lfs pointer, ….
    #[error("{} is not a picture: {found}", file.display())]
    NotAnImage {
        /// The file.
        file: PathBuf,
        /// What it is instead, and what to do about it.
        found: String,
    },

    /// The file is a picture, of a kind that is not read.
    #[error("{} cannot be read: {reason}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// Why not, and how to convert it.
        reason: String,
    },

    /// The file ends too early or breaks its format's rules.
    #[error("{} is damaged: {reason}; copy or download it again, or leave it out", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The rule and how it is broken.
        reason: String,
    },

    /// The file or its picture is larger than the [`Limits`](crate::Limits) allow.
    #[error("{} is too large: {reason}; raise the limit if you trust the file", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// Which limit, and by how much.
        reason: String,
    },

    /// A preprocessor's configuration cannot be used.
    #[error("{} is no preprocessing that can be used: {reason}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The entry, and what is wrong with it.
        reason: String,
    },

    /// An option, a field or an argument has a value that makes no sense.
    #[error("{0}")]
    BadOption(String),

    /// A folder of pictures is not laid out as one folder for each class.
    #[error("{} cannot be read as one folder for each class: {reason}", directory.display())]
    Folder {
        /// The directory.
        directory: PathBuf,
        /// What is missing, and what to do.
        reason: String,
    },

    /// A data set file breaks its format's rules.
    #[error("{} is not a {format} file: {reason}", file.display())]
    Dataset {
        /// The file.
        file: PathBuf,
        /// The format that was expected.
        format: &'static str,
        /// The rule and how it is broken.
        reason: String,
    },
}

impl ImageError {
    /// For `map_err` on an operation of `std::io`: `.map_err(ImageError::io("open", path))`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    pub(crate) fn config(file: &Path, reason: impl Into<String>) -> Self {
        Self::Config { file: file.to_owned(), reason: reason.into() }
    }

    pub(crate) fn dataset(file: &Path, format: &'static str, reason: impl Into<String>) -> Self {
        Self::Dataset { file: file.to_owned(), format, reason: reason.into() }
    }
}
