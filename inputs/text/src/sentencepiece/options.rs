//! Options of a SentencePiece tokenizer, from the settings beside it.

use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use tokenizers::{AddedToken, Tokenizer};

use crate::{
    error::{Result, TextError},
    files,
    pieces::Piece,
    special::{self, TokenEntry},
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
        let config = special::settings_of(model.parent().unwrap_or(Path::new("")))?;
        let flag = |name: &str| match config.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(TextError::config(&file, format!("its {name} is {other}, not true or false"))),
        };
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
        options.added = match config.get("added_tokens_decoder") {
            Some(entries) => decoder(entries).map_err(|reason| TextError::config(&file, reason))?,
            None => options.old_list(&model.with_file_name("added_tokens.json"))?,
        };
        Ok(options)
    }

    /// Reads the older `added_tokens.json`, from texts to ids.
    fn old_list(&self, file: &Path) -> Result<Vec<(u32, AddedToken)>> {
        let mut added = Vec::new();
        for (text, id) in files::object(file)?.unwrap_or_default() {
            let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                return Err(TextError::config(file, format!("{text:?} has no id")));
            };
            added.push((id, AddedToken::from(text.clone(), self.special.contains(&text))));
        }
        added.sort_by_key(|(id, _)| *id);
        Ok(added)
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
        for (id, token) in &self.added {
            let got = tokenizer.token_to_id(&token.content);
            if got != Some(*id) {
                let got = got.map_or("none".into(), |got| got.to_string());
                let text = &token.content;
                return Err(wrong(format!(
                    "the added token {text:?} should have the id {id}, but gets {got}; is this the model's own file?"
                )));
            }
        }
        Ok(())
    }

    /// Returns the token at an end of each sequence with its id, if `wanted`.
    pub(super) fn end(
        &self,
        tokenizer: &Tokenizer,
        wanted: bool,
        named: Option<&str>,
        usual: &str,
        file: &Path,
    ) -> Result<Option<(String, u32)>> {
        if !wanted {
            return Ok(None);
        }
        let text = named.unwrap_or(usual);
        match tokenizer.token_to_id(text) {
            Some(id) => Ok(Some((text.to_owned(), id))),
            None if named.is_some() => {
                let reason = format!(
                    "{text:?}, which is added to every text, is not a token of the model; correct bos_token and \
                     eos_token here or in special_tokens_map.json"
                );
                Err(TextError::config(&file.with_file_name("tokenizer_config.json"), reason))
            }
            None => Ok(None),
        }
    }
}

fn decoder(entries: &Value) -> std::result::Result<Vec<(u32, AddedToken)>, String> {
    let Some(entries) = entries.as_object() else { return Err("its added_tokens_decoder is not an object".into()) };
    let mut added = Vec::new();
    for (id, entry) in entries {
        let number: u32 = id.parse().map_err(|_| format!("{id:?} in its added_tokens_decoder is not an id"))?;
        let entry =
            TokenEntry::deserialize(entry).map_err(|error| format!("its added token {id} is wrong: {error}"))?;
        added.push((number, entry.token()));
    }
    added.sort_by_key(|(id, _)| *id);
    Ok(added)
}
