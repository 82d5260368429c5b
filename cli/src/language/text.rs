//! From files to tokens.

use grove::{
    models::Tokenizer,
    train::{DataIdentity, data::TokenStream},
};
use std::path::{Path, PathBuf};

use crate::{Exit, documents::documents, failure};

/// Data as given by the user.
pub enum Text {
    /// Documents.
    Documents(Vec<String>),
    /// Tokens already.
    Tokens(TokenStream),
}

/// True if a file's name is that of a token file.
pub fn holds_tokens(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "tokens")
}

/// Reads a token file, or text files and the .txt files of folders in the order of their names.
pub fn read(paths: &[PathBuf]) -> Result<Text, Exit> {
    match paths {
        [file] if holds_tokens(file) => return Ok(Text::Tokens(TokenStream::open(file).map_err(failure)?)),
        _ => {}
    }
    match paths.iter().find(|path| holds_tokens(path)) {
        Some(path) => Err(Exit::Usage(format!("{} is a token file: give it alone, as one path", path.display()))),
        None => documents(paths).map(Text::Documents),
    }
}

/// Identity of the tokens: the same text by another tokenizer is other data.
pub fn identity(stream: &TokenStream) -> String {
    const AT_ONCE: usize = 1 << 20;
    let mut identity = DataIdentity::new();
    for start in (0..stream.len()).step_by(AT_ONCE) {
        identity.add_tokens(&stream.read(start..stream.len().min(start + AT_ONCE)));
    }
    format!("{} tokens ({})", stream.len(), identity.finish())
}

impl Text {
    /// The tokens of all documents, each followed by the token that ends it.
    pub fn tokens(self, tokenizer: Option<&Tokenizer>, end: Option<u32>) -> Result<TokenStream, Exit> {
        let documents = match self {
            Self::Tokens(stream) => return Ok(stream),
            Self::Documents(documents) => documents,
        };
        let tokenizer = tokenizer.ok_or_else(|| failure("text needs a tokenizer: give one with --tokenizer"))?;
        let mut tokens = Vec::new();
        if end.is_none() && documents.len() > 1 {
            eprintln!("no token ends a text here: the documents follow each other without one");
        }
        for document in documents {
            tokens.extend(tokenizer.encode(&document).map_err(failure)?);
            // Some tokenizers put it behind every text themselves.
            tokens.extend(end.filter(|end| tokens.last() != Some(end)));
        }
        Ok(TokenStream::new(tokens))
    }
}
