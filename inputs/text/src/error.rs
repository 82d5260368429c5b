//! Errors of tokenizers, their files and chat templates.

use std::path::{Path, PathBuf};

use grove_files::FileError;
use grove_weights::WeightsError;

use crate::printable::error_message;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, TextError>;

/// Error of this crate. The message names the file or the template, the problem and the remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// A file cannot be read or written, or a JSON file has unexpected contents.
    #[error(transparent)]
    File(#[from] FileError),

    /// A GGUF file with a tokenizer cannot be read, or a model's files cannot be found or downloaded.
    #[error(transparent)]
    Weights(#[from] WeightsError),

    /// A tokenizer is invalid.
    #[error("{}: {reason}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },

    /// A tokenizer is missing.
    #[error("{}: {reason}", path.display())]
    NoTokenizer {
        /// The directory or the GGUF file.
        path: PathBuf,
        /// The files that were searched for.
        reason: String,
    },

    /// A text has no tokens.
    #[error("the tokenizer returned no tokens for this text")]
    NoTokens,

    /// A tokenizer has more tokens than the model.
    #[error(
        "{} returned token {id}, but the vocabulary of the model has {vocab_size}: the tokenizer belongs to another model",
        tokenizer.display()
    )]
    OtherTokenizer {
        /// File or directory of the tokenizer; `the tokenizer` if it was not read from files.
        tokenizer: PathBuf,
        /// A token id outside the model's vocabulary.
        id: u32,
        /// Vocabulary size of the model.
        vocab_size: usize,
    },

    /// An option is out of range.
    #[error("{option} is {value}; it must be {range}")]
    Option {
        /// The option.
        option: &'static str,
        /// The given value.
        value: String,
        /// The allowed range.
        range: &'static str,
    },

    /// The file is not a SentencePiece model, or not a supported one.
    #[error("{} is not a SentencePiece model that can be used: {reason}", file.display())]
    SentencePiece {
        /// The file.
        file: PathBuf,
        /// The violated rule and the remedy.
        reason: String,
    },

    /// The vocabulary of a GGUF file is inconsistent or of an unknown type.
    #[error("the vocabulary of this GGUF file cannot be used: {0}")]
    Vocabulary(String),

    /// A configuration file cannot be used.
    #[error("{} cannot be used: {reason}", file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The entry and its problem.
        reason: String,
    },

    /// A chat template is invalid, exceeds its limits, or cannot handle a message.
    #[error("the chat template cannot be used: {}{reason}", place(*line))]
    Template {
        /// The line of the template, counted from 1; `None` if it is unknown.
        line: Option<usize>,
        /// The problem.
        reason: String,
    },

    /// A chat template calls `raise_exception`: the conversation is not valid for its model.
    #[error("the model's chat template refuses this conversation: {message}")]
    Refused {
        /// The template's message.
        message: String,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for TextError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

fn place(line: Option<usize>) -> String {
    line.map(|line| format!("line {line}: ")).unwrap_or_default()
}

impl TextError {
    pub(crate) fn tokenizer(path: &Path, reason: String) -> Self {
        Self::Tokenizer { path: path.to_owned(), reason }
    }

    // The reasons below can quote a file, so they are shortened.
    pub(crate) fn sentencepiece(file: &Path, reason: impl Into<String>) -> Self {
        Self::SentencePiece { file: file.to_owned(), reason: error_message(&reason.into()) }
    }

    pub(crate) fn config(file: &Path, reason: impl Into<String>) -> Self {
        Self::Config { file: file.to_owned(), reason: error_message(&reason.into()) }
    }

    /// Adds the file to an error of a template.
    pub(crate) fn in_file(self, file: &Path) -> Self {
        match self {
            Self::Template { line, reason } => {
                Self::config(file, format!("the chat template (`chat_template`): {}{reason}", place(line)))
            }
            other => other,
        }
    }

    pub(crate) fn template(line: Option<usize>, reason: impl Into<String>) -> Self {
        Self::Template { line, reason: error_message(&reason.into()) }
    }
}
