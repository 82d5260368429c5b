//! Training text of language models, before tokenization.

use std::path::Path;

use grove_text::Tokenizer;

use super::{DataError, TokenStream, read_documents};

/// Training text of a language model: documents, or the tokens of a token file.
#[derive(Clone, Debug)]
pub enum LmText {
    /// Documents.
    Documents(Vec<String>),
    /// Tokens of a token file.
    Tokens(TokenStream),
}

impl LmText {
    /// Reads one token file, or text files, files of records and folders of either; see [`read_documents`].
    ///
    /// - `text_column`: column of the texts in files of records, such as `text`
    ///
    /// # Errors
    /// Those of [`TokenStream::open`] and [`read_documents`]; [`DataError::SeveralTokenFiles`] for a token file given
    /// together with other files.
    pub fn read(paths: &[impl AsRef<Path>], text_column: &str) -> Result<Self, DataError> {
        match (paths, paths.iter().map(AsRef::as_ref).find(|path| Self::is_token_file(path))) {
            ([file], Some(_)) => Ok(Self::Tokens(TokenStream::open(file)?)),
            (_, Some(file)) => Err(DataError::SeveralTokenFiles { file: file.into() }),
            (_, None) => Ok(Self::Documents(read_documents(paths, text_column)?)),
        }
    }

    /// True if a file has the extension of token files, `.tokens`.
    pub fn is_token_file(file: &Path) -> bool {
        file.extension().is_some_and(|extension| extension == "tokens")
    }

    /// Returns the tokens for a model of `vocab_size` tokens: those of the token file, or the tokenized documents, each
    /// followed by the token `end`; see [`TokenStream::encode`].
    ///
    /// # Errors
    /// Documents without a tokenizer, a document that the tokenizer rejects, or a token outside the vocabulary.
    pub fn encode(
        self,
        tokenizer: Option<&Tokenizer>,
        end: Option<u32>,
        vocab_size: usize,
    ) -> Result<TokenStream, DataError> {
        let stream = match (self, tokenizer) {
            (Self::Tokens(stream), _) => stream,
            (Self::Documents(documents), Some(tokenizer)) => TokenStream::encode(&documents, tokenizer, end)?,
            (Self::Documents(_), None) => return Err(DataError::NoTokenizer),
        };
        match stream.largest() {
            Some(token) if token as usize >= vocab_size => Err(DataError::OutsideModel { token, vocab_size }),
            _ => Ok(stream),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_other_files_beside_a_token_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let (tokens, text) = (directory.path().join("a.tokens"), directory.path().join("b.txt"));
        TokenStream::write(&tokens, 0..10, 10).expect("written");
        std::fs::write(&text, "text").expect("written");
        let stream = LmText::read(&[&tokens], "text").expect("a token file").encode(None, None, 10).expect("tokens");
        assert_eq!(stream.len(), 10);
        assert!(LmText::read(&[&tokens], "text").expect("a token file").encode(None, None, 9).is_err());
        assert!(matches!(LmText::read(&[&text, &tokens], "text"), Err(DataError::SeveralTokenFiles { .. })));
        let documents = LmText::read(&[directory.path()], "text").expect("a folder of text");
        assert!(matches!(&documents, LmText::Documents(documents) if documents == &["text"]));
        assert!(documents.encode(None, None, 10).expect_err("no tokenizer").to_string().contains("needs a tokenizer"));
    }
}
