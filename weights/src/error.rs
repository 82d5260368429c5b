//! Errors in files, hubs and the match between a checkpoint and a model.

use std::path::{Path, PathBuf};

use grove_files::FileError;

use crate::report::Report;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, WeightsError>;

/// An error of this crate. Each error names the file, tensor or model in one sentence, and says how to fix the problem;
/// a report of names ([`WeightsError::Incompatible`]) has several lines.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A file cannot be read or written, or a settings file has unexpected contents.
    #[error(transparent)]
    File(#[from] FileError),

    /// A peft adapter cannot be used, or does not fit the model.
    #[error("{}: {reason}", file.display())]
    Adapter {
        /// The adapter's file or directory.
        file: PathBuf,
        /// The reason and the remedy.
        reason: String,
    },

    /// A directory contains no weights under any name known to this crate.
    #[error(
        "no weights in {}, which {}: looked for {}{}; give the directory of a model, such as run/model",
        directory.display(),
        contents(found),
        looked_for.join(", "),
        cannot_read(foreign)
    )]
    NothingFound {
        /// The directory.
        directory: PathBuf,
        /// The names and patterns tried, in order.
        looked_for: Vec<String>,
        /// Names of all files and folders in the directory, sorted.
        found: Vec<String>,
        /// Other frameworks' files in the directory, each with its kind.
        foreign: Vec<String>,
    },

    /// The file contains no weights: it is empty, a git-lfs pointer, a web page, a directory or similar.
    #[error("{} is not a weights file: {found}", file.display())]
    NotWeights {
        /// The file.
        file: PathBuf,
        /// The kind of file found, and the remedy.
        found: String,
    },

    /// The file's format is known but not supported.
    #[error("{} cannot be read: {reason}", file.display())]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The reason, and the way to convert the file.
        reason: String,
    },

    /// The file violates the rules of its format.
    #[error("{} is malformed: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The violated rule, and the violation.
        reason: String,
    },

    /// The file's entry for one tensor violates the rules of the format.
    #[error("{} is malformed: tensor `{tensor}`: {reason}", file.display())]
    MalformedTensor {
        /// The file.
        file: PathBuf,
        /// The tensor's name in the file.
        tensor: String,
        /// The violated rule, and the violation.
        reason: String,
    },

    /// The checkpoint has no tensor of this name.
    #[error("no tensor `{name}` in {}{}", place.display(), did_you_mean(suggestions))]
    UnknownTensor {
        /// The requested name.
        name: String,
        /// The checkpoint.
        place: PathBuf,
        /// Similar names that exist.
        suggestions: Vec<String>,
    },

    /// Values of this stored type cannot be converted to the requested type.
    #[error("tensor `{tensor}`: cannot convert {from} to {to}: {reason}")]
    Conversion {
        /// The tensor's name in the file.
        tensor: String,
        /// Stored type.
        from: String,
        /// Requested type.
        to: String,
        /// The reason.
        reason: String,
    },

    /// A transpose, split, merge or reshape of the name map does not apply to the shape of the tensor.
    #[error("tensor `{tensor}`: the name map's {step} does not fit: {reason}")]
    Transform {
        /// The tensor's name in the file, or the model's path when saving.
        tensor: String,
        /// The step.
        step: String,
        /// The reason.
        reason: String,
    },

    /// Names or shapes of the checkpoint and the model differ. The report lists every difference.
    #[error("the checkpoint does not fit the model\n{0}")]
    Incompatible(Box<Report>),

    /// A leaf to be saved is absent.
    #[error("cannot save `{path}`: the leaf is absent (the tree is a skeleton, or a part of a `partition`)")]
    AbsentLeaf {
        /// The leaf.
        path: String,
    },

    /// A leaf cannot be written to the file format.
    #[error("cannot save `{path}`: {reason}")]
    CannotSave {
        /// The leaf.
        path: String,
        /// The reason.
        reason: String,
    },

    /// The text names neither something on disk nor a hub id.
    #[error("`{text}` is neither an existing file or directory nor a hub id: {reason}")]
    BadSource {
        /// The given text.
        text: String,
        /// The problem with it.
        reason: String,
    },

    /// The program was built without the feature `hub`, and the source is a hub id.
    #[error(
        "cannot download {wanted} of `{id}`: this program was built without grove's feature `hub`; give a local file or directory (no local one has this name), or add the feature to `grove` in Cargo.toml"
    )]
    WithoutHub {
        /// The hub id.
        id: String,
        /// Description of the files.
        wanted: &'static str,
    },

    /// An option for the hub is invalid.
    #[error("{0}")]
    BadHubOption(String),

    /// The hub has no such repository, or the user has no access to it.
    #[error(
        "no model `{id}` at {endpoint}, and no file or directory {id} here: check the spelling; if it is private, set HF_TOKEN"
    )]
    UnknownRepository {
        /// The hub id.
        id: String,
        /// The hub.
        endpoint: String,
    },

    /// The repository exists, but not the revision.
    #[error("model `{id}` at {endpoint} has no revision `{revision}`")]
    UnknownRevision {
        /// The hub id.
        id: String,
        /// Branch, tag or commit.
        revision: String,
        /// The hub.
        endpoint: String,
    },

    /// The repository lacks a required file.
    #[error("model `{id}` at {endpoint} has no {wanted}")]
    MissingFile {
        /// The hub id.
        id: String,
        /// The file, or a description of the files.
        wanted: String,
        /// The hub.
        endpoint: String,
    },

    /// The hub refuses access without a token, or with the given token (HTTP 401 and 403).
    #[error(
        "{endpoint} refuses access to `{id}` (HTTP {status}): {}",
        if *had_token { "the token has no access to it; accept the model's licence on its page or use another HF_TOKEN" }
        else { "set HF_TOKEN to a token that may read it; for a public model check the spelling, for a local one check the path: no such file or directory exists" }
    )]
    Unauthorized {
        /// The hub id.
        id: String,
        /// The hub.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// True if a token was sent.
        had_token: bool,
    },

    /// The hub cannot be reached.
    #[error(
        "cannot reach {endpoint} for `{id}`: {reason}; give a local directory (no local one has this name), or set HF_ENDPOINT to a mirror"
    )]
    Network {
        /// The hub id.
        id: String,
        /// The hub.
        endpoint: String,
        /// The error of the connection.
        reason: String,
    },

    /// Offline mode, but the files are not in the cache.
    #[error("offline, and `{id}` at revision `{revision}` is not complete in the cache {}: {missing} is missing; unset HF_HUB_OFFLINE to download it, or give a local directory (no local one has this name)", cache.display())]
    Offline {
        /// The hub id.
        id: String,
        /// Branch, tag or commit.
        revision: String,
        /// The cache directory.
        cache: PathBuf,
        /// The first missing file or entry.
        missing: String,
    },

    /// The hub answers with a server error (HTTP 5xx), or with an invalid response.
    #[error("{endpoint} failed to serve `{id}`: {reason}")]
    Server {
        /// The hub id.
        id: String,
        /// The hub.
        endpoint: String,
        /// The HTTP status, or the problem with the response.
        reason: String,
    },

    /// A transfer failed, and failed again at each attempt to resume it.
    #[error("downloading {file} of `{id}` broke {attempts} times: {reason}; run again to resume")]
    Transfer {
        /// The hub id.
        id: String,
        /// The file in the repository.
        file: String,
        /// Number of attempts.
        attempts: usize,
        /// The error of the last attempt.
        reason: String,
    },

    /// The content of a file does not match the checksum announced by the hub.
    #[error(
        "{endpoint} sent a damaged {file} of `{id}`: its sha256 is {received} instead of {announced}; the downloaded \
         part was deleted, run again to repeat the download"
    )]
    Checksum {
        /// The hub id.
        id: String,
        /// The file in the repository.
        file: String,
        /// The hub.
        endpoint: String,
        /// The hub's sha256, in hexadecimal digits.
        announced: Box<str>,
        /// The sha256 of the content that arrived.
        received: Box<str>,
    },
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for WeightsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl WeightsError {
    pub(crate) fn malformed(file: &Path, reason: impl Into<String>) -> Self {
        Self::Malformed { file: file.into(), reason: reason.into() }
    }

    pub(crate) fn malformed_tensor(file: &Path, tensor: &str, reason: impl Into<String>) -> Self {
        Self::MalformedTensor { file: file.into(), tensor: tensor.into(), reason: reason.into() }
    }

    pub(crate) fn unsupported(file: &Path, reason: impl Into<String>) -> Self {
        Self::Unsupported { file: file.into(), reason: reason.into() }
    }

    /// Returns the report of [`WeightsError::Incompatible`]; `None` for every other error.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Incompatible(report) => Some(report),
            _ => None,
        }
    }
}

/// Returns a phrase with the first names in a directory.
fn contents(names: &[String]) -> String {
    let (first, more) = names.split_at(names.len().min(5));
    match more.len() {
        _ if names.is_empty() => "is empty".into(),
        0 => format!("has {}", first.join(", ")),
        more => format!("has {} and {more} more", first.join(", ")),
    }
}

/// Returns `; cannot read a.onnx (an ONNX model)`, or an empty string.
fn cannot_read(foreign: &[String]) -> String {
    if foreign.is_empty() { String::new() } else { format!("; cannot read {}", foreign.join(", ")) }
}

/// Returns `` ; did you mean `a` or `b`? ``, or an empty string.
pub(crate) fn did_you_mean(suggestions: &[String]) -> String {
    if suggestions.is_empty() { String::new() } else { format!("; did you mean `{}`?", suggestions.join("` or `")) }
}
