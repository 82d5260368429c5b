//! From files to tokens.

use grove::{
    models::Tokenizer,
    train::data::{TokenStream, read_text},
};
use std::path::{Path, PathBuf};

use crate::common::Exit;

/// What a person gave as data.
pub enum Text {
    /// Documents, and the files they were in.
    Documents(Vec<String>),
    /// Tokens already.
    Tokens(TokenStream),
}

/// Reads files, and the .txt files of folders in the order of their names.
pub fn read(paths: &[PathBuf]) -> Result<Text, Exit> {
    if let [file] = paths
        && file.extension().is_some_and(|extension| extension == "tokens")
    {
        return Ok(Text::Tokens(TokenStream::open(file).map_err(failure)?));
    }
    let mut files = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => files.extend(text_files(path)?),
            false => files.push(path.clone()),
        }
    }
    Ok(Text::Documents(files.iter().map(|file| read_text(file).map_err(failure)).collect::<Result<_, _>>()?))
}

fn text_files(directory: &Path) -> Result<Vec<PathBuf>, Exit> {
    let listing = std::fs::read_dir(directory).map_err(|error| failure(format!("{}: {error}", directory.display())))?;
    let mut files: Vec<PathBuf> = listing.filter_map(|item| Some(item.ok()?.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    match files.is_empty() {
        true => Err(failure(format!("{} has no .txt files", directory.display()))),
        false => Ok(files),
    }
}

impl Text {
    /// The tokens of all documents, each followed by the token that ends a text.
    pub fn tokens(&self, tokenizer: Option<&Tokenizer>) -> Result<TokenStream, Exit> {
        let documents = match self {
            Self::Tokens(stream) => return Ok(stream.clone()),
            Self::Documents(documents) => documents,
        };
        let tokenizer = tokenizer.ok_or_else(|| failure("text needs a tokenizer: give one with --tokenizer"))?;
        let mut tokens = Vec::new();
        for document in documents {
            tokens.extend(tokenizer.encode(document).map_err(failure)?);
            tokens.extend(tokenizer.end_of_text());
        }
        Ok(TokenStream::new(tokens))
    }
}

pub fn failure(error: impl std::fmt::Display) -> Exit {
    Exit::Failure(error.to_string())
}
