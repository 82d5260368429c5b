//! Options of a SentencePiece tokenizer, from the settings beside it.

use std::path::Path;

use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use crate::{
    error::{Result, TextError},
    files,
    pieces::Piece,
    special,
};

/// Options that a SentencePiece model does not contain. Defaults are LLaMA's.
#[derive(Clone, Debug)]
pub struct Options {
    /// If true, every sequence begins with the `bos` token. Default: true.
    pub add_bos: bool,
    /// If true, every sequence ends with the `eos` token. Default: false.
    pub add_eos: bool,
    /// Beginning-of-sequence token; `None` for the model's own, usually `<s>`.
    pub bos: Option<String>,
    /// End-of-sequence token; `None` for the model's own, usually `</s>`.
    pub eos: Option<String>,
    /// Pieces that are special tokens in addition to the model's control pieces. Names that are not pieces are ignored.
    pub special: Vec<String>,
    /// If true, a space is prepended to a text; `None` for the model's own setting.
    pub add_prefix_space: Option<bool>,
    /// If true, a space is also inserted after each special token within a text, as in transformers before July 2023.
    pub legacy: bool,
    /// Additional tokens with ids after the model's pieces, or pieces with other properties.
    pub added: Vec<(u32, AddedToken)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            add_bos: true,
            add_eos: false,
            bos: None,
            eos: None,
            special: Vec::new(),
            add_prefix_space: None,
            legacy: false,
            added: Vec::new(),
        }
    }
}

impl Options {
    /// Reads `tokenizer_config.json`, `special_tokens_map.json` and `added_tokens.json` beside a model, if they exist.
    ///
    /// # Errors
    /// A file cannot be read, or an entry has the wrong type.
    pub fn beside(model: impl AsRef<Path>) -> Result<Self> {
        let model = model.as_ref();
        let file = model.with_file_name("tokenizer_config.json");
        let mut options = Self::default();
        let directory = model.parent().unwrap_or(Path::new(""));
        let config = special::settings_of(directory)?;
        let flag = |name: &str| files::flag(&file, &config, name);
        // As in transformers, a token that a file sets to null is not added.
        let denied = |role: &str| config.get(role).is_some_and(Value::is_null);
        options.add_bos = flag("add_bos_token")?.unwrap_or(true) && !denied("bos_token");
        options.add_eos = flag("add_eos_token")?.unwrap_or(false) && !denied("eos_token");
        options.add_prefix_space = flag("add_prefix_space")?;
        options.legacy = flag("legacy")?.unwrap_or(false);
        let named = |role: &str| config.get(role).and_then(files::token).map(str::to_owned);
        (options.bos, options.eos) = (named("bos_token"), named("eos_token"));
        options.special.extend(special::ROLES.into_iter().filter_map(named));
        for list in special::LISTS {
            let tokens = config.get(list).and_then(Value::as_array).into_iter().flatten();
            options.special.extend(tokens.filter_map(files::token).map(str::to_owned));
        }
        let special = options.special.iter().cloned().collect();
        options.added = special::listed_tokens(&config, directory, &special)?;
        Ok(options)
    }

    /// Returns the special tokens that are pieces.
    pub(super) fn named(&self, pieces: &[Piece]) -> Vec<AddedToken> {
        let texts: std::collections::HashSet<&str> = pieces.iter().map(|piece| piece.text.as_str()).collect();
        let known = self.special.iter().filter(|text| texts.contains(text.as_str()));
        known.map(|text| special::added(text, true)).collect()
    }

    /// Adds the additional tokens, and checks that they get the ids in the file.
    pub(super) fn add_to(&self, tokenizer: &mut Tokenizer, file: &Path) -> Result<()> {
        let wrong = |reason: String| TextError::config(&file.with_file_name("tokenizer_config.json"), reason);
        let tokens: Vec<AddedToken> = self.added.iter().map(|(_, token)| token.clone()).collect();
        special::add(tokenizer, &tokens).map_err(wrong)?;
        self.added.iter().try_for_each(|(id, token)| special::check_id(tokenizer, &token.content, *id)).map_err(wrong)
    }

    /// Returns the tokens at the beginning and at the end of each sequence with their ids. `usual` are the model's own.
    pub(super) fn ends(
        &self,
        tokenizer: &Tokenizer,
        usual: [&str; 2],
        file: &Path,
    ) -> Result<[Option<(String, u32)>; 2]> {
        let end = |is_added: bool, named: &Option<String>, usual: &str| {
            if !is_added {
                return Ok(None);
            }
            let text = named.as_deref().unwrap_or(usual);
            match tokenizer.token_to_id(text) {
                None if named.is_some() => {
                    let reason = format!(
                        "{text:?}, which is added to every text, is not a token of the model; correct bos_token and \
                         eos_token here or in special_tokens_map.json"
                    );
                    Err(TextError::config(&file.with_file_name("tokenizer_config.json"), reason))
                }
                id => Ok(id.map(|id| (text.to_owned(), id))),
            }
        };
        Ok([end(self.add_bos, &self.bos, usual[0])?, end(self.add_eos, &self.eos, usual[1])?])
    }
}
