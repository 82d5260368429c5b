//! Errors of data sets.

use std::path::{Path, PathBuf};

use grove_files::FileError;

use super::Position;

/// An error of the data. Each is one sentence that names the file, where there is one, and what to do.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// None of the examples of a batch, or of a rank's part of one, can be read; others may.
    #[error("{0}")]
    NoneReadable(String),

    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] FileError),

    /// The file is something else than text: a directory, empty, in another encoding.
    #[error("{} cannot be read as text: {reason}", file.display())]
    NotText {
        /// The file.
        file: PathBuf,
        /// Description of the file's actual content, and a remedy.
        reason: String,
    },

    /// The file is something else than a token file, or a damaged one.
    #[error("{} is not a whole token file: {reason}", file.display())]
    NotTokens {
        /// The file.
        file: PathBuf,
        /// The problem in it, and a remedy.
        reason: String,
    },

    /// A token file is given beside other files.
    #[error("{} is a token file: give it alone, as one path", file.display())]
    SeveralTokenFiles {
        /// The token file.
        file: PathBuf,
    },

    /// The file was written by a later grove.
    #[error(
        "{} is a token file of version {version}, and this grove reads version {known}: update grove, or \
         make the file again",
        file.display()
    )]
    NewerTokens {
        /// The file.
        file: PathBuf,
        /// Its version.
        version: u32,
        /// The version that this grove reads and writes.
        known: u32,
    },

    /// A token that is to be written is not below the number of tokens there are.
    #[error(
        "cannot write {}: token {token} at position {position} is not in a vocabulary of {vocabulary}; give \
         the vocabulary of the tokenizer that made it",
        file.display()
    )]
    OutsideVocabulary {
        /// The file.
        file: PathBuf,
        /// The token.
        token: u32,
        /// Position in the stream, from 0.
        position: u64,
        /// The number of different tokens.
        vocabulary: u32,
    },

    /// A table lacks a column, and its single column has a character that divides columns in other files.
    #[error(
        "{problem}; if columns are divided by {}, give that delimiter",
        if *delimiter == '\t' { "tabs".to_owned() } else { format!("'{delimiter}'") }
    )]
    Delimiter {
        /// The missing column, with the file and the line.
        problem: String,
        /// The other delimiter.
        delimiter: char,
    },

    /// Documents are to be encoded without a tokenizer.
    #[error("text needs a tokenizer: give one, or a file of tokens")]
    NoTokenizer,

    /// The data has a token that the model does not have.
    #[error(
        "the data has token {token}, and the model's vocabulary has {vocab_size} tokens, from 0 on: give a new model a larger \
         vocabulary, or the tokenizer that belongs to this one"
    )]
    OutsideModel {
        /// The token.
        token: u32,
        /// Vocabulary size of the model.
        vocab_size: usize,
    },

    /// There is less text than one context.
    #[error(
        "{text} has {tokens} tokens and one context of {context} needs {}, as its last token needs a successor: \
         give a longer text or a shorter context",
        context.saturating_add(1)
    )]
    TooShort {
        /// The stream: the text, its file, or a part of it.
        text: String,
        /// Its tokens.
        tokens: usize,
        /// The context asked for.
        context: usize,
    },

    /// There are fewer examples than one batch has.
    #[error(
        "a batch of {batch_size} is larger than the data, which has {examples} {what}: give a batch size of \
         at most {examples}, or more data"
    )]
    BatchTooLarge {
        /// Examples in a batch.
        batch_size: usize,
        /// Examples there are.
        examples: usize,
        /// Name of the examples: "examples", "windows of 129 tokens", ….
        what: String,
    },

    /// A size that is zero and may not be.
    #[error("the {what} is 0: it must be at least 1")]
    Zero {
        /// The size.
        what: &'static str,
    },

    /// There are no examples.
    #[error("there are no examples: give at least one")]
    NoExamples,

    /// There are more examples than can be shuffled.
    #[error("{examples} examples are too many to shuffle: at most 2^32 can be; use a longer context or less data")]
    TooMany {
        /// Examples there are.
        examples: usize,
    },

    /// The lengths for bucketing do not belong to the examples.
    #[error("{lengths} lengths were given for {examples} examples: give one for each")]
    Lengths {
        /// Lengths given.
        lengths: usize,
        /// Examples there are.
        examples: usize,
    },

    /// The held-out part is not a part.
    #[error("the held-out part of the text is {fraction} of it: it must be from 0 to 1, such as 0.1")]
    Fraction {
        /// The fraction asked for.
        fraction: f64,
    },

    /// The position to go on from does not exist in this data.
    #[error(
        "{position} does not exist, as an epoch has {batches} batches: resume with the data, batch size and \
         context that the run began with"
    )]
    NoSuchPosition {
        /// The position.
        position: Position,
        /// Batches in its epoch.
        batches: usize,
    },

    /// An epoch has no batches, so that nothing can ever come.
    #[error("epoch {epoch} has no batches: give more data or a smaller batch size")]
    NoBatches {
        /// The epoch.
        epoch: u64,
    },

    /// The thread that loads ahead could not be started.
    #[error("cannot start the thread that loads data: {0}")]
    Thread(std::io::Error),

    /// The thread that loads ahead panicked.
    #[error("loading data panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },

    /// Error of loading an example; see [`DataError::other`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for DataError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl DataError {
    /// For implementations of [`Data`](super::Data): an error of their own, or a sentence.
    ///
    /// ```
    /// let error = grove_train::data::DataError::other("cat.png is no image: it is empty");
    /// assert_eq!(error.to_string(), "cat.png is no image: it is empty");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    /// For `map_err` on an operation of `std::io`: `.map_err(DataError::io("open", path))`.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let named = FileError::io(action, path);
        move |source| named(source).into()
    }
}
