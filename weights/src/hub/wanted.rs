//! Selection of a repository's files.

#[cfg(feature = "hub")]
use std::path::Path;

#[cfg(feature = "hub")]
use crate::locate::{ENDINGS, PUBLISHED, ShardIndex, find, is_plain_file_name};

/// Optional files of a model besides its weights.
const BESIDE: [&str; 16] = [
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "encoder.json",
    "vocab.bpe",
    "tokenizer.model",
    "preprocessor_config.json",
    "modules.json",
    "sentence_bert_config.json",
    "1_Pooling/config.json",
];

/// The files of a repository to download.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatterns {
    pub(super) required: Vec<String>,
    pub(super) optional: Vec<String>,
    pub(super) weights: bool,
    pub(super) tokenizer: bool,
}

/// Files of a tokenizer, and files that say how it is used.
const TOKENIZER: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
    "encoder.json",
    "vocab.bpe",
    "tokenizer.model",
];

impl FilePatterns {
    /// All files of a model: `config.json`, the weights in one format (safetensors if there are any, else PyTorch's,
    /// else numpy's, else a single GGUF file; all shards), and the available tokenizer, generation and preprocessing
    /// files.
    pub fn model() -> Self {
        let optional = BESIDE.iter().map(|name| (*name).to_string()).collect();
        Self { required: vec!["config.json".into()], optional, weights: true, tokenizer: false }
    }

    /// Only the files `names`, all required.
    pub fn files<S: Into<String>>(names: impl IntoIterator<Item = S>) -> Self {
        Self {
            required: names.into_iter().map(Into::into).collect(),
            optional: Vec::new(),
            weights: false,
            tokenizer: false,
        }
    }

    /// The files of a model's tokenizer, without its weights. A repository without any of them lacks a required file;
    /// one of GGUF files has the tokenizer in its weights.
    pub fn tokenizer() -> Self {
        let optional = TOKENIZER.map(str::to_owned).into();
        Self { required: Vec::new(), optional, weights: false, tokenizer: true }
    }

    /// Adds an optional file.
    pub fn and_maybe(mut self, name: impl Into<String>) -> Self {
        self.optional.push(name.into());
        self
    }

    /// Description of the files, for messages.
    #[cfg(not(feature = "hub"))]
    pub(super) fn description(&self) -> &'static str {
        match self {
            Self { weights: true, .. } => "a model",
            Self { tokenizer: true, .. } => "a tokenizer",
            _ => "files",
        }
    }
}

/// Files of which each is a tokenizer, or one half of it.
#[cfg(feature = "hub")]
const VOCABULARIES: [&str; 5] = ["tokenizer.json", "vocab.json", "vocab.txt", "encoder.json", "tokenizer.model"];

/// Returns true if files with these names hold a tokenizer.
#[cfg(feature = "hub")]
pub(super) fn has_tokenizer(exists: impl Fn(&str) -> bool) -> bool {
    VOCABULARIES.into_iter().any(exists)
}

/// Checks of the client.
#[cfg(feature = "hub")]
impl FilePatterns {
    /// Describes the first required file that a directory lacks; `None` if it has all of them.
    pub(super) fn lacking(&self, directory: &Path) -> Option<String> {
        if let Some(missing) = self.required.iter().find(|name| !directory.join(name).exists()) {
            return Some(missing.clone());
        }
        if self.tokenizer && !has_tokenizer(|name| directory.join(name).exists()) {
            return Some("a tokenizer".into());
        }
        if !self.weights {
            return None;
        }
        let Ok(weights) = find(directory) else { return Some("a weights file".into()) };
        if weights.extension().is_none_or(|extension| extension != "json") {
            return None;
        }
        match ShardIndex::read(&weights) {
            Ok(index) => index.shards().into_iter().find(|shard| !directory.join(shard).exists()).map(Into::into),
            Err(_) => Some("a valid index of shards".into()),
        }
    }
}

/// The file of weights, or the index of several, in a list of a repository's files; `None` if there is none.
#[cfg(feature = "hub")]
pub(super) fn weights_among<'a>(files: &[&'a str]) -> Option<&'a str> {
    let published = PUBLISHED.iter().find_map(|name| files.iter().find(|file| *file == name));
    let single = || {
        ENDINGS.iter().find_map(|ending| {
            let mut fitting = files.iter().filter(|file| {
                is_plain_file_name(file) && Path::new(file).extension().is_some_and(|extension| extension == *ending)
            });
            fitting.next().filter(|_| fitting.next().is_none())
        })
    };
    published.or_else(single).copied()
}

#[cfg(all(test, feature = "hub"))]
mod tests {
    use super::*;

    #[test]
    fn prefers_safetensors() {
        for (files, expected) in [
            (&["pytorch_model.bin", "model.safetensors"][..], Some("model.safetensors")),
            (&["pytorch_model.bin", "model.safetensors.index.json"], Some("model.safetensors.index.json")),
            (&["onnx/model.pt", "resnet.pth", "README.md"], Some("resnet.pth")),
            (&["a.safetensors", "b.safetensors"], None),
            (&["ViT-B_16.npz", "config.json"], Some("ViT-B_16.npz")),
            (&["model.Q4_1.gguf", "config.json"], Some("model.Q4_1.gguf")),
            (&["model.Q4_1.gguf", "model.Q8_0.gguf"], None),
            (&["README.md"], None),
        ] {
            assert_eq!(weights_among(files), expected);
        }
    }

    #[test]
    fn says_what_a_directory_lacks() {
        let directory = tempfile::tempdir().expect("a directory");
        let put = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).expect("written");
        let lacking = || FilePatterns::model().lacking(directory.path());
        assert_eq!(lacking().as_deref(), Some("config.json"));
        put("config.json", "{}");
        assert_eq!(lacking().as_deref(), Some("a weights file"));
        put("model.safetensors.index.json", r#"{"weight_map": {"a": "x.safetensors"}}"#);
        assert_eq!(lacking().as_deref(), Some("x.safetensors"));
        let tokenizer = || FilePatterns::tokenizer().lacking(directory.path());
        assert_eq!(tokenizer().as_deref(), Some("a tokenizer"));
        put("vocab.txt", "");
        assert_eq!(tokenizer(), None);
        put("x.safetensors", "");
        assert_eq!(lacking(), None);
    }
}
