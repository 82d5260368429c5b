//! Tokens that end a sequence.

use serde::{Deserialize, Serialize, Serializer};
use std::path::Path;

use crate::{
    error,
    keys::JsonFields,
    pretrained::{file_beside, read_json},
};

/// Tokens that end a sequence: one, several, or none. Negative values in a file mean none.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<Numbers>")]
pub enum EndTokens {
    /// One token.
    One(u32),
    /// Any of several tokens.
    Any(Vec<u32>),
    /// No token ends a sequence.
    None,
}

/// One token or several tokens of a file.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a token's number, or a list of such")]
enum Numbers {
    One(i64),
    Any(Vec<i64>),
}

impl Numbers {
    /// Returns the values that are token ids.
    fn to_vec(&self) -> Vec<u32> {
        let numbers = match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Any(numbers) => numbers,
        };
        numbers.iter().filter_map(|&number| u32::try_from(number).ok()).collect()
    }
}

impl From<Option<Numbers>> for EndTokens {
    fn from(numbers: Option<Numbers>) -> Self {
        match numbers {
            None => Self::None,
            Some(Numbers::One(number)) => u32::try_from(number).ok().into(),
            Some(several) => Self::Any(several.to_vec()),
        }
    }
}

impl From<Option<u32>> for EndTokens {
    fn from(token: Option<u32>) -> Self {
        token.map_or(Self::None, Self::One)
    }
}

impl Serialize for EndTokens {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One(token) => serializer.serialize_u32(*token),
            Self::Any(tokens) => serializer.collect_seq(tokens),
            Self::None => serializer.serialize_none(),
        }
    }
}

impl EndTokens {
    /// Returns the tokens.
    pub fn to_vec(&self) -> Vec<u32> {
        match self {
            Self::One(token) => vec![*token],
            Self::Any(tokens) => tokens.clone(),
            Self::None => vec![],
        }
    }
}

/// Returns a model's end tokens: those of its `generation_config.json`, if it names any, else `own`, those of its
/// `config.json`.
pub(crate) fn published_ends(model: &Path, own: EndTokens) -> error::Result<EndTokens> {
    let file = file_beside(model, "generation_config.json");
    if !file.is_file() {
        return Ok(own);
    }
    let ends: Option<EndTokens> = JsonFields::new(&file, read_json(&file)?).get("eos_token_id")?;
    Ok(ends.unwrap_or(own))
}
