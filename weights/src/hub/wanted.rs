//! The files of a repository that a caller needs.

use crate::names_of_files::{SETTINGS_FILES, tokenizer_files};

/// The files of a repository to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatterns {
    pub(super) required: Vec<String>,
    pub(super) optional: Vec<String>,
    pub(crate) weights: bool,
    pub(super) tokenizer: bool,
    /// One of several GGUF files: its name, or its quantization.
    pub(super) gguf: Option<String>,
}

impl FilePatterns {
    /// Selects all files of a model: `config.json`, the weights in one format, and the available tokenizer, generation
    /// and preprocessing files. An older repository of sentence-transformers has them in `0_Transformer`. The format of
    /// the weights is safetensors if present, else PyTorch, else numpy, else a single GGUF file, which needs no
    /// `config.json`; all shards are included.
    pub fn model() -> Self {
        let optional = tokenizer_files().chain(SETTINGS_FILES).map(str::to_owned).collect();
        Self { optional, weights: true, ..Self::files(["config.json"]) }
    }

    /// Selects only the files `names`, all required.
    pub fn files<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            required: names.into_iter().map(Into::into).collect(),
            optional: Vec::new(),
            weights: false,
            tokenizer: false,
            gguf: None,
        }
    }

    /// Selects one of a repository's GGUF files as the weights, by its name or by its quantization, such as `Q4_K_M`.
    pub fn with_gguf(self, choice: impl Into<String>) -> Self {
        Self { gguf: Some(choice.into()), ..self }
    }

    /// Selects the files of a model's tokenizer, without the weights. A repository without any of them lacks a required
    /// file; a repository of GGUF files has the tokenizer in its weights.
    pub fn tokenizer() -> Self {
        let optional = tokenizer_files().map(str::to_owned).collect();
        Self { optional, tokenizer: true, ..Self::files::<String>([]) }
    }
}

/// Without a client, nothing is downloaded.
#[cfg(not(feature = "hub"))]
impl FilePatterns {
    /// Returns `None`.
    pub(crate) fn weights_in(&self, _: &std::path::Path) -> Option<std::path::PathBuf> {
        None
    }

    /// Returns a description of the files, for messages.
    pub(super) fn description(&self) -> &'static str {
        match self {
            Self { weights: true, .. } => "a model",
            Self { tokenizer: true, .. } => "a tokenizer",
            _ => "files",
        }
    }
}
