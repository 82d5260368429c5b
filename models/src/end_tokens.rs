//! Tokens that end a sequence.

use grove_files::{JsonFields, read_json};
use serde::{Deserialize, Serialize, Serializer};
use std::path::Path;

use crate::{error, pretrained::file_beside};

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

impl From<Option<Numbers>> for EndTokens {
    fn from(numbers: Option<Numbers>) -> Self {
        let token = |number: i64| u32::try_from(number).ok();
        match numbers {
            None => Self::None,
            Some(Numbers::One(number)) => token(number).into(),
            Some(Numbers::Any(numbers)) => Self::Any(numbers.into_iter().filter_map(token).collect()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gpt2Config, GptNeoConfig, LlamaConfig, PretrainedConfig};
    use grove_weights::TensorFiles;

    /// As in transformers, whose `generate` ends at the tokens of `generation_config.json`.
    #[test]
    fn generation_config_takes_precedence_over_config() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(directory.path().join(name), text).unwrap();
        let files = TensorFiles::open("tests/fixtures/gpt2/tiny_a/model.safetensors").unwrap();
        let ends = || {
            let model = directory.path();
            let own = [
                Gpt2Config::of(model, &files).unwrap().eos_token_id,
                GptNeoConfig::of(model, &files).unwrap().eos_token_id,
                LlamaConfig::of(model, &files).unwrap().eos_token_id,
                published_ends(&model.join("model.safetensors"), EndTokens::One(2)).unwrap(),
            ];
            let ends = own.map(|ends| ends.to_vec());
            assert!(ends.iter().all(|other| *other == ends[0]), "{ends:?}");
            ends[0].clone()
        };
        write("config.json", r#"{"eos_token_id": 2}"#);
        assert_eq!(ends(), [2], "config.json alone");
        write("generation_config.json", r#"{"eos_token_id": [7, 9], "top_k": 5}"#);
        assert_eq!(ends(), [7, 9]);
        write("generation_config.json", r#"{"eos_token_id": 5}"#);
        assert_eq!(ends(), [5]);
        write("generation_config.json", r#"{"eos_token_id": []}"#);
        assert!(ends().is_empty(), "an empty list counts");
        for silent in [r#"{"top_k": 5}"#, r#"{"eos_token_id": null}"#] {
            write("generation_config.json", silent);
            assert_eq!(ends(), [2], "{silent}");
        }
        write("generation_config.json", r#"{"eos_token_id": "</s>"}"#);
        let error = Gpt2Config::of(directory.path(), &files).unwrap_err().to_string();
        assert!(error.contains("generation_config.json: `eos_token_id` is"), "{error}");
    }
}
