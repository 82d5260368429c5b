//! Added tokens: the entries of `added_tokens_decoder` and of `added_tokens.json`, and special tokens that only
//! `tokenizer_config.json` or `special_tokens_map.json` name.

use grove_files::FileError;
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeSet, path::Path};
use tokenizers::{AddedToken, Tokenizer as HfTokenizer};

use super::class::{Class, Settings};
use crate::{
    error::{Result, TextError},
    files,
    special::{ROLES, TokenEntry, check_id, listed_tokens},
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
        let listed = self.listed()?.into_iter();
        let mut tokens: Vec<(Option<u32>, AddedToken)> = listed.map(|(id, token)| (Some(id), token)).collect();
        let known: BTreeSet<String> =
            tokenizer.get_added_tokens_decoder().into_values().map(|token| token.content).collect();
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
            if let Some(id) = id {
                check_id(tokenizer, &token.content, id).map_err(wrong)?;
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
        let mut kept: Vec<AddedToken> = self.listed()?.into_iter().map(|(_, token)| token).collect();
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
    fn listed(&self) -> Result<Vec<(u32, AddedToken)>> {
        let special = self.named()?.into_iter().map(|token| token.content).collect();
        listed_tokens(&self.fields, &self.directory, &special)
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
