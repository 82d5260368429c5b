//! The encoder that a task or a training starts from.

use grove::files::directory_at;

use crate::prelude::*;

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
        let path = resolve(model, "bert-austen", &FilePatterns::model())?;
        let directory = directory_at(&path);
        let (tokenizer, config) = (Tokenizer::from_path(directory)?, BertConfig::beside(&path)?);
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
