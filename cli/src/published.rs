//! A model's files, and what belongs to it.

use grove::{
    files::directory_of,
    models::{BertConfig, PretrainedConfig, Tokenizer},
    weights::FilePatterns,
};

use crate::{prelude::*, resolve};

/// Files of a model.
pub struct Published {
    /// Directory or weights file.
    pub path: PathBuf,
    /// Directory of the weights and their configuration.
    pub directory: PathBuf,
}

impl Published {
    /// Opens the model that `--model` names, downloaded if needed, or one that ships, below `models/assets`.
    pub fn open(model: Option<&str>, ships: &str) -> Result<Self, Exit> {
        let path = resolve(model, ships, &FilePatterns::model())?;
        Ok(Self { directory: directory(&path).to_owned(), path })
    }
}

/// The directory of a model's files, given it or a weights file.
pub(crate) fn directory(path: &Path) -> &Path {
    if path.is_dir() { path } else { directory_of(path) }
}

/// Files, configuration and tokenizer of a BERT.
pub struct Encoder {
    /// Directory or weights file.
    pub path: PathBuf,
    /// Sizes.
    pub config: BertConfig,
    /// Its tokenizer.
    pub tokenizer: Tokenizer,
}

impl Encoder {
    /// Opens the model that `--model` names, downloaded if needed, or the one that ships.
    pub fn open(model: Option<&str>) -> Result<Self, Exit> {
        let Published { path, directory } = Published::open(model, "bert-austen")?;
        let (tokenizer, config) = (Tokenizer::from_path(&directory)?, BertConfig::beside(&path)?);
        if tokenizer.vocab_size() > config.vocab_size {
            return Err(failure(format!(
                "{}: the tokenizer has {} tokens and the model {}: they do not belong together",
                directory.display(),
                tokenizer.vocab_size(),
                config.vocab_size
            )));
        }
        Ok(Self { path, config, tokenizer })
    }
}
