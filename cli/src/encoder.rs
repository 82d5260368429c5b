//! A published BERT and what belongs to it.

use grove::{
    files::directory_of,
    models::{BertConfig, PretrainedConfig, Tokenizer},
    weights::FilePatterns,
};
use std::path::PathBuf;

use crate::{Exit, failure, resolve};

/// The model that ships with grove, below `models/assets`.
const SHIPPED: &str = "bert-austen";

/// Files, configuration and tokenizer of a model.
pub struct Published {
    /// Directory or weights file.
    pub path: PathBuf,
    pub config: BertConfig,
    pub tokenizer: Tokenizer,
}

impl Published {
    /// Opens the model that `--model` names, downloaded if needed, or the one that ships.
    pub fn open(model: Option<&str>) -> Result<Self, Exit> {
        let path = resolve(model, SHIPPED, &FilePatterns::model())?;
        let directory = if path.is_dir() { path.clone() } else { directory_of(&path).to_owned() };
        let tokenizer = Tokenizer::from_path(&directory).map_err(failure)?;
        let config = BertConfig::beside(&path).map_err(failure)?;
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
