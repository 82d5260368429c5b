//! Special and added tokens.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokenizers::{AddedToken, Tokenizer, processors::template::TemplateProcessing};

use crate::{
    error::{Result as TextResult, TextError},
    files,
    printable::excerpt,
};

/// Maximum number of tokens that are matched as a whole in a text. Published models have at most about 6,000. The
/// automaton that finds them needs memory per character.
const MAX_ADDED: usize = 1 << 16;

/// Maximum total length of these tokens, in bytes.
const LONGEST: usize = 4 << 20;

/// Maximum length of one of these tokens, in bytes: the time to build the automaton is quadratic in the length of a
/// token.
const LONGEST_TOKEN: usize = 1 << 10;

/// A token with its properties, as stored in files.
#[derive(Deserialize)]
pub(crate) struct TokenEntry {
    content: String,
    #[serde(default)]
    single_word: bool,
    #[serde(default)]
    lstrip: bool,
    #[serde(default)]
    rstrip: bool,
    #[serde(default)]
    normalized: bool,
    #[serde(default)]
    special: bool,
}

impl TokenEntry {
    pub(crate) fn token(self) -> AddedToken {
        AddedToken::from(self.content, self.special)
            .single_word(self.single_word)
            .lstrip(self.lstrip)
            .rstrip(self.rstrip)
            .normalized(self.normalized)
    }
}

/// Returns a token that is matched before the text is split: a special token, which decoding can skip, or a
/// user-defined one.
pub(crate) fn added(text: &str, special: bool) -> AddedToken {
    AddedToken::from(text, special).normalized(false)
}

/// Adds tokens that are matched as a whole in a text. Tokens that are not in the vocabulary get the next ids.
///
/// # Errors
/// The tokens exceed a limit on their number or length.
pub fn add(tokenizer: &mut Tokenizer, tokens: &[AddedToken]) -> Result<(), String> {
    let contents = || tokens.iter().map(|token| token.content.as_str());
    check(contents(), contents().map(str::len).sum())?;
    tokenizer.add_tokens(tokens);
    Ok(())
}

/// Checks the number of tokens, their lengths, and their total length in bytes after normalisation.
pub(crate) fn check<'a>(tokens: impl Iterator<Item = &'a str>, bytes: usize) -> Result<(), String> {
    let mut count = 0;
    for token in tokens {
        count += 1;
        if token.len() > LONGEST_TOKEN {
            let (length, text) = (token.len(), excerpt(token, 20));
            return Err(format!("the special token `{text}` has {length} bytes; the maximum is {LONGEST_TOKEN}"));
        }
    }
    if count > MAX_ADDED {
        return Err(format!("it has {count} added tokens; the maximum is {MAX_ADDED}"));
    }
    if bytes > LONGEST {
        return Err("its special tokens have more than 4 MiB of text".into());
    }
    Ok(())
}

/// Adds a token at the beginning of each text, and one at the end.
///
/// # Errors
/// The tokenizers library refuses the tokens.
pub fn surround(
    tokenizer: &mut Tokenizer,
    first: Option<(String, u32)>,
    last: Option<(String, u32)>,
) -> Result<(), String> {
    if first.is_none() && last.is_none() {
        return Ok(());
    }
    // The library's own notation, "<s> $A", does not support tokens with a space or a colon.
    let special = |token: &(String, u32), part: u32| json!({"SpecialToken": {"id": token.0, "type_id": part}});
    let around = |name: &str, part: u32| -> Vec<Value> {
        let text = json!({"Sequence": {"id": name, "type_id": part}});
        let first = first.iter().map(|token| special(token, part));
        first.chain([text]).chain(last.iter().map(|token| special(token, part))).collect()
    };
    let tokens: serde_json::Map<String, Value> = first
        .iter()
        .chain(&last)
        .map(|(text, id)| (text.clone(), json!({"id": text, "ids": [id], "tokens": [text]})))
        .collect();
    let pair: Vec<Value> = around("A", 0).into_iter().chain(around("B", 1)).collect();
    let template = json!({
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": pair,
        "special_tokens": tokens,
    });
    let template: TemplateProcessing = serde_json::from_value(template).map_err(|error| error.to_string())?;
    tokenizer.with_post_processor(Some(template));
    Ok(())
}

/// Returns the special tokens of a model's directory by role, such as `eos_token`, as named in its
/// `tokenizer_config.json` and `special_tokens_map.json`; empty if there are no such files. See
/// [`tokenizer_settings`].
///
/// # Errors
/// A file cannot be read, or is not a JSON object.
pub fn special_tokens(directory: impl AsRef<Path>) -> TextResult<BTreeMap<String, String>> {
    Ok(named_tokens(&settings_of(directory.as_ref())?))
}

/// Returns the [`tokenizer_settings`] of a directory.
pub(crate) fn settings_of(directory: &Path) -> TextResult<Map<String, Value>> {
    let object = |name: &str| Ok::<_, TextError>(files::object(&directory.join(name))?.unwrap_or_default());
    tokenizer_settings(object("tokenizer_config.json")?, || object("special_tokens_map.json"))
}

/// Returns the tokens that the files of a directory list with their ids, ordered by id: the entries of
/// `added_tokens_decoder` in the [settings](settings_of), else those of the older `added_tokens.json`, from texts to ids.
/// `special` are the special tokens among those of the older file.
///
/// # Errors
/// A file cannot be read, or an entry is not a token with an id.
pub(crate) fn listed_tokens(
    settings: &Map<String, Value>,
    directory: &Path,
    special: &BTreeSet<String>,
) -> TextResult<Vec<(u32, AddedToken)>> {
    let mut tokens = Vec::new();
    if let Some(entries) = settings.get("added_tokens_decoder").filter(|entries| !entries.is_null()) {
        let wrong = |reason: String| TextError::config(&directory.join("tokenizer_config.json"), reason);
        let Some(entries) = entries.as_object() else {
            return Err(wrong("its added_tokens_decoder is not an object".into()));
        };
        for (id, entry) in entries {
            let number = id.parse().map_err(|_| wrong(format!("{id:?} in its added_tokens_decoder is not an id")))?;
            let entry = TokenEntry::deserialize(entry).map_err(|error| {
                wrong(format!("the entry {id:?} of its added_tokens_decoder is not a token: {error}"))
            })?;
            tokens.push((number, entry.token()));
        }
    } else {
        let file = directory.join("added_tokens.json");
        for (text, id) in files::object(&file)?.unwrap_or_default() {
            let Some(id) = id.as_u64().and_then(|id| u32::try_from(id).ok()) else {
                return Err(TextError::config(&file, format!("{text:?} has no id")));
            };
            let is_special = special.contains(&text);
            tokens.push((id, AddedToken::from(text, is_special)));
        }
    }
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens)
}

/// Checks that an added token has the id in its file.
pub(crate) fn check_id(tokenizer: &Tokenizer, text: &str, id: u32) -> Result<(), String> {
    let got = tokenizer.token_to_id(text);
    if got == Some(id) {
        return Ok(());
    }
    let got = got.map_or("none".into(), |got| got.to_string());
    Err(format!(
        "the added token {text:?} (of `added_tokens_decoder`, or of added_tokens.json) should have the id {id}, but gets \
         {got}; is this the model's own file?"
    ))
}

/// Keys of the special tokens of transformers, in the order in which it adds missing ones.
pub(crate) const ROLES: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// Keys of lists of tokens without a role.
pub(crate) const LISTS: [&str; 2] = ["additional_special_tokens", "extra_special_tokens"];

/// Merges the settings of a tokenizer as transformers does: the fields of `tokenizer_config.json`, and those of the older
/// `special_tokens_map.json`, which is read by `map` and takes precedence. It is not read if the newer file lists the
/// added tokens (`added_tokens_decoder`). Lists of additional tokens in both files are joined.
///
/// # Errors
/// Those of `map`.
pub fn tokenizer_settings<E>(
    mut config: Map<String, Value>,
    map: impl FnOnce() -> Result<Map<String, Value>, E>,
) -> Result<Map<String, Value>, E> {
    if config.contains_key("added_tokens_decoder") {
        return Ok(config);
    }
    for (key, value) in map()? {
        if LISTS.contains(&key.as_str())
            && let Some(Value::Array(tokens)) = config.get_mut(&key)
            && let Value::Array(more) = &value
        {
            let known: BTreeSet<String> = tokens.iter().filter_map(files::token).map(str::to_owned).collect();
            let new = |token: &&Value| files::token(token).is_none_or(|text| !known.contains(text));
            tokens.extend(more.iter().filter(new).cloned());
            continue;
        }
        config.insert(key, value);
    }
    Ok(config)
}

/// Returns the entries of the settings that name a token.
pub(crate) fn named_tokens(settings: &Map<String, Value>) -> BTreeMap<String, String> {
    let tokens = settings.iter().filter(|(name, _)| name.ends_with("_token"));
    tokens.filter_map(|(name, value)| Some((name.clone(), files::token(value)?.to_owned()))).collect()
}
