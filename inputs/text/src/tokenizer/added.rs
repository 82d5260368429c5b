//! Added tokens: the entries of `added_tokens_decoder` and of `added_tokens.json`, and special tokens that only
//! `tokenizer_config.json` or `special_tokens_map.json` name.

use grove_files::{FileError, read_json};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};
use tokenizers::{AddedToken, Tokenizer as HfTokenizer};

use super::class::{Class, Settings};
use crate::{
    error::{Result, TextError},
    files,
    special::{ROLES, TokenEntry},
};

/// Default special tokens of transformers' SentencePiece class.
const SENTENCEPIECE: &[(&str, &str)] = &[("bos_token", "<s>"), ("eos_token", "</s>"), ("unk_token", "<unk>")];

/// Returns the default special tokens of transformers' classes.
fn defaults(class: &Class) -> &'static [(&'static str, &'static str)] {
    match class {
        Class::Bert { .. } => &[
            ("unk_token", "[UNK]"),
            ("sep_token", "[SEP]"),
            ("pad_token", "[PAD]"),
            ("cls_token", "[CLS]"),
            ("mask_token", "[MASK]"),
        ],
        Class::Roberta => &[
            ("bos_token", "<s>"),
            ("eos_token", "</s>"),
            ("sep_token", "</s>"),
            ("cls_token", "<s>"),
            ("unk_token", "<unk>"),
            ("pad_token", "<pad>"),
            ("mask_token", "<mask>"),
        ],
        Class::Gpt2 => {
            &[("bos_token", "<|endoftext|>"), ("eos_token", "<|endoftext|>"), ("unk_token", "<|endoftext|>")]
        }
        Class::Qwen2 => {
            &[("eos_token", "<|endoftext|>"), ("unk_token", "<|endoftext|>"), ("pad_token", "<|endoftext|>")]
        }
        Class::Llama | Class::Whole { .. } | Class::Other(_) => &[],
    }
}

impl Settings {
    /// Returns the special token for a role: the files' or the class's default.
    pub fn special(&self, role: &str) -> Option<String> {
        let own = || defaults(&self.class).iter().find(|(name, _)| *name == role).map(|(_, token)| *token);
        let named = self.fields.get(role);
        if named.is_some_and(Value::is_null) {
            return None;
        }
        named.and_then(files::token).or_else(own).map(str::to_owned)
    }

    /// Returns the class's default special tokens that no file names and that a chat template can use. `model` is true
    /// for a SentencePiece model.
    pub fn unnamed(&self, model: bool) -> impl Iterator<Item = (&'static str, &'static str)> {
        let own = match &self.class {
            Class::Llama => SENTENCEPIECE,
            Class::Whole { .. } if model => SENTENCEPIECE,
            class => defaults(class),
        };
        own.iter().copied().filter(|(role, _)| !self.fields.contains_key(*role))
    }

    /// Adds the tokens listed in the files beside a vocabulary. Tokens in the vocabulary keep their ids. Each other
    /// token must get the id in its file.
    pub fn add_tokens(&self, tokenizer: &mut HfTokenizer) -> Result<()> {
        let listed = self.listed()?;
        let known: BTreeSet<String> =
            tokenizer.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
        let mut tokens: Vec<(Option<u32>, AddedToken)> = vec![];
        for (id, token) in listed {
            tokens.push((Some(id), token));
        }
        for token in self.named()? {
            if !known.contains(&token.content) && !tokens.iter().any(|(_, other)| other.content == token.content) {
                tokens.push((None, token));
            }
        }
        // A default token that no file names is not added if the vocabulary lacks it, since the model has no such
        // token. RoBERTa is an exception: its sequences need `<s>` and `</s>`.
        let names: Vec<&str> = self.fields.values().filter_map(files::token).collect();
        let own = defaults(&self.class);
        tokens.retain(|(id, token)| {
            let implied =
                self.class != Class::Roberta && id.is_none() && own.iter().any(|(_, name)| *name == token.content);
            !implied || names.contains(&token.content.as_str()) || tokenizer.token_to_id(&token.content).is_some()
        });
        let all: Vec<AddedToken> = tokens.iter().map(|(_, token)| token.clone()).collect();
        tokens.retain(|(_, token)| tokenizer.token_to_id(&token.content).is_none());
        let wrong = |reason: String| TextError::tokenizer(&self.file, reason);
        crate::add_tokens(tokenizer, &all).map_err(wrong)?;
        for (id, token) in tokens {
            let (Some(id), got) = (id, tokenizer.token_to_id(&token.content)) else { continue };
            if got != Some(id) {
                let (text, got) = (&token.content, got.map_or("none".into(), |got| got.to_string()));
                return Err(wrong(format!(
                    "the added token {text:?} (of `added_tokens_decoder`, or of added_tokens.json) should have the id \
                     {id}, but gets {got}; is this the model's own file?"
                )));
            }
        }
        Ok(())
    }

    /// Notes once if a transformers 5 class lacks added tokens of a `tokenizer.json` because `tokenizer_config.json`
    /// lists others.
    pub fn compare_added(&self, tokenizer: &HfTokenizer, file: &Path) -> Result<()> {
        if self.fields.get("added_tokens_decoder").is_none_or(Value::is_null) {
            return Ok(());
        }
        let mut kept: Vec<AddedToken> = self.listed()?.into_values().collect();
        kept.extend(self.named()?);
        let own = tokenizer.get_added_tokens_decoder().into_values();
        let lost = own
            .filter(|token| !kept.iter().any(|other| other.content == token.content))
            .min_by(|a, b| a.content.cmp(&b.content));
        if let Some(token) = lost {
            let how = format!("has no added token {:?}, as added_tokens_decoder lists others", token.content);
            self.say_rebuilt(file, &how);
        }
        Ok(())
    }

    /// Returns the tokens that are listed with ids, ordered by id.
    fn listed(&self) -> Result<BTreeMap<u32, AddedToken>> {
        let wrong = |file: &Path, reason: String| TextError::File(FileError::json(file, reason));
        let mut tokens = BTreeMap::new();
        if let Some(entries) = self.fields.get("added_tokens_decoder").filter(|entries| !entries.is_null()) {
            let Some(entries) = entries.as_object() else {
                return Err(wrong(&self.file, "added_tokens_decoder is not an object".into()));
            };
            for (id, entry) in entries {
                let number = || wrong(&self.file, format!("{id:?} in added_tokens_decoder is not an id"));
                let entry = TokenEntry::deserialize(entry).map_err(|error| {
                    wrong(&self.file, format!("the entry {id:?} of `added_tokens_decoder` is not a token: {error}"))
                })?;
                tokens.insert(id.parse().map_err(|_| number())?, entry.token());
            }
            return Ok(tokens);
        }
        let file = self.directory.join("added_tokens.json");
        if file.is_file() {
            let special: BTreeSet<String> = self.named()?.into_iter().map(|token| token.content).collect();
            for (text, id) in read_json::<Map<String, Value>>(&file)? {
                let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                    return Err(wrong(&file, format!("{text:?} has no id")));
                };
                let special = special.contains(&text);
                tokens.insert(id, AddedToken::from(text, special));
            }
        }
        Ok(tokens)
    }

    /// Returns the named special tokens and the additional ones.
    fn named(&self) -> Result<Vec<AddedToken>> {
        let mut tokens: Vec<AddedToken> = vec![];
        let mut add = |value: &Value| -> Result<()> {
            let token = match value {
                Value::String(text) => AddedToken::from(text.clone(), true),
                Value::Object(_) => TokenEntry::deserialize(value)
                    .map_err(|error| FileError::json(&self.file, format!("a special token is wrong: {error}")))?
                    .token()
                    .special(true),
                _ => return Ok(()),
            };
            if !token.content.is_empty() && !tokens.iter().any(|other| other.content == token.content) {
                tokens.push(token);
            }
            Ok(())
        };
        for role in ROLES {
            match (self.fields.get(role), self.special(role)) {
                (Some(value @ Value::Object(_)), _) => add(value)?,
                // RoBERTa's mask token includes the space before it, as in version 4 and in the published
                // tokenizer.json.
                (None, Some(token)) if role == "mask_token" && self.class == Class::Roberta => {
                    add(&serde_json::json!({ "content": token, "lstrip": true }))?;
                }
                (_, Some(token)) => add(&token.into())?,
                _ => {}
            }
        }
        let own = self.fields.iter().filter(|(name, _)| name.ends_with("_token") && !ROLES.contains(&name.as_str()));
        for (_, value) in own {
            add(value)?;
        }
        for list in ["model_specific_special_tokens", "extra_special_tokens", "additional_special_tokens"] {
            match self.fields.get(list) {
                Some(Value::Array(values)) => values.iter().try_for_each(&mut add)?,
                Some(Value::Object(values)) => values.values().try_for_each(&mut add)?,
                _ => {}
            }
        }
        Ok(tokens)
    }
}
