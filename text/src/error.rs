//! What can go wrong between files and tokens, and between messages and a prompt.

use std::path::{Path, PathBuf};

use crate::printable::error_message;

/// Result of everything in this crate.
pub type Result<T> = std::result::Result<T, TextError>;

/// An error of this crate. Each names the file or the template it is about, what is wrong, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done: "open", "read", ….
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },

    /// The file is no SentencePiece model, or one that cannot be used.
    #[error("{} is not a SentencePiece model that can be used: {reason}", file.display())]
    SentencePiece {
        /// The file.
        file: PathBuf,
        /// The rule that it breaks, and what to do.
        reason: String,
    },

    /// A vocabulary of a GGUF file contradicts itself, or is of a kind that is not known.
    #[error("the vocabulary of this GGUF file cannot be used: {0}")]
    Vocabulary(String),

    /// A file of settings cannot be used.
    #[error("{} cannot be used: {reason}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The entry, and what is wrong with it.
        reason: String,
    },

    /// A chat template is wrong, does more than it may, or meets a message that it does not foresee.
    #[error("the chat template cannot be used: {}{reason}", place(*line))]
    Template {
        /// The line of the template, from 1, where it is known.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },

    /// A chat template calls `raise_exception`: this conversation is none for its model.
    #[error("the model's chat template refuses this conversation: {message}")]
    Refused {
        /// What the template says.
        message: String,
    },
}

fn place(line: Option<usize>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

impl TextError {
    /// For `map_err` on an operation of `std::io`: `.map_err(TextError::io("open", path))`.
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }

    // What follows may quote a file, and no error repeats all of one.
    pub(crate) fn sentencepiece(file: &Path, reason: impl Into<String>) -> Self {
        Self::SentencePiece { file: file.to_owned(), reason: error_message(&reason.into()) }
    }

    pub(crate) fn config(file: &Path, reason: impl Into<String>) -> Self {
        Self::Config { file: file.to_owned(), reason: error_message(&reason.into()) }
    }

    pub(crate) fn template(line: Option<usize>, reason: impl Into<String>) -> Self {
        Self::Template { line, reason: error_message(&reason.into()) }
    }
}
