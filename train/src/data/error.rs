//! Errors of data sets.

use std::path::PathBuf;

use grove_files::FileError;

use super::Position;

/// Error of a data set. The message is one sentence that names the file, if any, and a remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// No example of a batch, or of a rank's part of a batch, can be read. Other batches may be readable.
    #[error("{0}")]
    NoneReadable(String),

    /// Error of the operating system.
    #[error(transparent)]
    Io(#[from] FileError),

    /// The file is not text: a directory, an empty file or a file in another encoding.
    #[error("{} cannot be read as text: {reason}", file.display())]
    NotText {
        /// The file.
        file: PathBuf,
        /// Description of the file's actual content, and a remedy.
        reason: String,
    },

    /// The file is not a token file, or is damaged.
    #[error("{} is not a complete token file: {reason}", file.display())]
    NotTokens {
        /// The file.
        file: PathBuf,
        /// Description of the problem, and a remedy.
        reason: String,
    },

    /// A token file was given together with other files.
    #[error("{} is a token file: give it as the only path", file.display())]
    SeveralTokenFiles {
        /// The token file.
        file: PathBuf,
    },

    /// The file was written by a later version of grove.
    #[error(
        "{} is a token file of version {version}; this version of grove reads version {known}: update grove, or \
         create the file again",
        file.display()
    )]
    NewerTokens {
        /// The file.
        file: PathBuf,
        /// Format version of the file.
        version: u32,
        /// Format version that this version of grove reads and writes.
        known: u32,
    },

    /// A token to be written is outside the vocabulary.
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
        /// Vocabulary size.
        vocabulary: u32,
    },

    /// A table lacks a column, and its only column contains another common delimiter.
    #[error(
        "{problem}; if {} separate the columns, give that delimiter",
        if *delimiter == '\t' { "tabs".to_owned() } else { format!("'{delimiter}'") }
    )]
    Delimiter {
        /// The missing column, with the file and the line.
        problem: String,
        /// The other delimiter.
        delimiter: char,
    },

    /// Documents cannot be encoded without a tokenizer.
    #[error("text needs a tokenizer: give one, or a token file")]
    NoTokenizer,

    /// The data has a token outside the model's vocabulary.
    #[error(
        "token {token} of the data is outside the model's vocabulary of {vocab_size} tokens: give a new model a larger \
         vocabulary, or use the model's own tokenizer"
    )]
    OutsideModel {
        /// The token.
        token: u32,
        /// Vocabulary size of the model.
        vocab_size: usize,
    },

    /// Data for masked language modelling has no token that can be masked.
    #[error("no text of the data has a token that can be masked")]
    NothingToMask,

    /// The text is shorter than one context.
    #[error(
        "{text} has {tokens} tokens, but a context of {context} needs {}, because the last token needs a successor: \
         give a longer text or a shorter context",
        context.saturating_add(1)
    )]
    TooShort {
        /// Description of the stream: the text, its file, or a part of it.
        text: String,
        /// Number of tokens of the stream.
        tokens: usize,
        /// Requested context length, in tokens.
        context: usize,
    },

    /// The batch size exceeds the number of examples.
    #[error(
        "a batch of {batch_size} is larger than the data, which has {examples} {what}: give a batch size of \
         at most {examples}, or more data"
    )]
    BatchTooLarge {
        /// Batch size.
        batch_size: usize,
        /// Number of examples.
        examples: usize,
        /// Noun for the examples: "examples", "windows of 129 tokens", ….
        what: String,
    },

    /// A size is 0 but must be at least 1.
    #[error("the {what} is 0: it must be at least 1")]
    Zero {
        /// Name of the size.
        what: &'static str,
    },

    /// There are no examples.
    #[error("there are no examples: give at least one")]
    NoExamples,

    /// There are too many examples to shuffle.
    #[error("{examples} examples are too many to shuffle; the maximum is 2^32: use a longer context or less data")]
    TooMany {
        /// Number of examples.
        examples: usize,
    },

    /// The number of lengths for bucketing differs from the number of examples.
    #[error("{lengths} lengths were given for {examples} examples: give one for each")]
    Lengths {
        /// Number of lengths.
        lengths: usize,
        /// Number of examples.
        examples: usize,
    },

    /// The held-out fraction is not from 0 to 1.
    #[error("the held-out fraction is {fraction}: it must be from 0 to 1, such as 0.1")]
    Fraction {
        /// Requested fraction.
        fraction: f64,
    },

    /// The position to resume from does not exist in this data.
    #[error(
        "{position} does not exist, because an epoch has {batches} batches: resume with the data, batch size and \
         context of the original run"
    )]
    NoSuchPosition {
        /// The position.
        position: Position,
        /// Number of batches in its epoch.
        batches: usize,
    },

    /// An epoch has no batches, so the iterator would never return one.
    #[error("epoch {epoch} has no batches: give more data or a smaller batch size")]
    NoBatches {
        /// The epoch.
        epoch: u64,
    },

    /// The prefetching thread could not be started.
    #[error("cannot start the thread that loads data: {0}")]
    Thread(std::io::Error),

    /// The prefetching thread panicked.
    #[error("loading data panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },

    /// Error of loading an example; see [`DataError::other`].
    #[error(transparent)]
    Other(Box<dyn std::error::Error + Send + Sync>),
}

// `main` prints a returned error with `Debug`, so `Debug` shows the message.
impl std::fmt::Debug for DataError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl DataError {
    /// Wraps an error of an implementation of [`Data`](super::Data), or a message.
    ///
    /// ```
    /// let error = grove_train::data::DataError::other("cat.png is not an image: it is empty");
    /// assert_eq!(error.to_string(), "cat.png is not an image: it is empty");
    /// ```
    pub fn other(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }
}
