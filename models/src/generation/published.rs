use grove_backend::Backend;
use serde::Deserialize;
use std::path::Path;

use super::{CausalLm, GenerateOptions, Sampling};
use crate::{Tokenizer, error::Result, pretrained::read_json};

/// The fields of a `generation_config.json` that are used.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Published {
    do_sample: Option<bool>,
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
    eos_token_id: Option<Ends>,
}

/// Tokens that end a sequence: one, or any of several.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a token's number, or a list of such")]
enum Ends {
    One(i64),
    Any(Vec<i64>),
}

impl Ends {
    /// The valid token ids. Negative values are ignored.
    fn tokens(&self) -> Vec<u32> {
        let numbers = match self {
            Self::One(number) => std::slice::from_ref(number),
            Self::Any(numbers) => numbers,
        };
        numbers.iter().filter_map(|&number| u32::try_from(number).ok()).collect()
    }
}

impl GenerateOptions {
    /// The options with which a model was published: the `generation_config.json` in its directory, or beside its
    /// weights file. It holds the sampling options (greedy with `"do_sample": false`) and the tokens that end a
    /// sequence. `sampling` is for a model that does not say whether to sample; a repetition penalty counts in any
    /// case.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, or has invalid values. The error names the file.
    pub fn published(model: impl AsRef<Path>, sampling: Sampling) -> Result<Self> {
        let model = model.as_ref();
        let name = "generation_config.json";
        let file = if model.is_dir() { model.join(name) } else { model.with_file_name(name) };
        if !file.is_file() {
            return Ok(Self { sampling, ..Self::default() });
        }
        let published: Published = read_json(&file)?;
        let mut sampling = match published.do_sample {
            Some(true) => Sampling {
                temperature: published.temperature.unwrap_or(1.0),
                // transformers writes 0 for all.
                top_k: published.top_k.filter(|&k| k > 0),
                top_p: published.top_p,
                min_p: published.min_p,
                ..Sampling::default()
            },
            Some(false) => Sampling::greedy(),
            None => sampling,
        };
        sampling.repetition_penalty = published.repetition_penalty.unwrap_or(sampling.repetition_penalty);
        sampling.validate().map_err(|error| crate::ModelError::Json { file, reason: error.to_string() })?;
        let end_tokens = published.eos_token_id.map(|ends| ends.tokens());
        Ok(Self { sampling, end_tokens, ..Self::default() })
    }
}

/// The token that ends each document of a training text: the tokenizer's own, unless the model ends a sequence by others.
/// These are the tokens of the `generation_config.json` beside `source`, the files of a pretrained model, else those of the
/// model's configuration.
///
/// # Errors
/// As [`GenerateOptions::published`].
pub fn document_end<B: Backend>(
    model: &impl CausalLm<B>,
    source: Option<&Path>,
    tokenizer: &Tokenizer,
) -> Result<Option<u32>> {
    let published = source.map(|path| GenerateOptions::published(path, Sampling::default())).transpose()?;
    let ends = published.and_then(|published| published.end_tokens).unwrap_or_else(|| model.end_tokens());
    let own = tokenizer.end_of_text();
    Ok(own.filter(|token| ends.is_empty() || ends.contains(token)).or(ends.first().copied()).or(own))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_generation_config() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(directory.path().join("generation_config.json"), text).unwrap();
        let ours = Sampling { temperature: 0.8, ..Sampling::default() };
        let read = || GenerateOptions::published(directory.path(), ours.clone()).unwrap();
        assert_eq!(read(), GenerateOptions { sampling: ours.clone(), ..GenerateOptions::default() });

        write(r#"{"temperature": 0.2}"#);
        assert_eq!((read().sampling, read().end_tokens), (ours.clone(), None), "nothing says whether to sample");
        write(r#"{"repetition_penalty": 1.3, "eos_token_id": null}"#);
        assert_eq!(read().sampling, Sampling { repetition_penalty: 1.3, ..ours.clone() });
        assert_eq!(read().end_tokens, None);
        write(r#"{"do_sample": false, "temperature": 0.2, "top_k": 5, "repetition_penalty": 1.3}"#);
        assert_eq!(read().sampling, Sampling { repetition_penalty: 1.3, ..Sampling::greedy() });

        write(r#"{"do_sample": true, "temperature": 0.5, "top_k": 0, "top_p": 0.9, "transformers_version": "5.23.0"}"#);
        let expected = Sampling { temperature: 0.5, top_p: Some(0.9), ..Sampling::default() };
        let beside = directory.path().join("model.safetensors");
        assert_eq!(GenerateOptions::published(beside, ours.clone()).unwrap().sampling, expected);
        for broken in ["{", r#"{"do_sample": true, "top_p": 7}"#, r#"{"eos_token_id": "</s>"}"#] {
            write(broken);
            let error = GenerateOptions::published(directory.path(), ours.clone()).unwrap_err().to_string();
            assert!(error.contains("generation_config.json"), "{error}");
        }
    }

    #[test]
    fn end_tokens_are_a_number_or_a_list() {
        let directory = tempfile::tempdir().unwrap();
        let ends = |value: &str| {
            let text = format!(r#"{{"eos_token_id": {value}}}"#);
            std::fs::write(directory.path().join("generation_config.json"), text).unwrap();
            GenerateOptions::published(directory.path(), Sampling::default()).unwrap().end_tokens
        };
        assert_eq!(ends("2"), Some(vec![2]));
        assert_eq!(ends("[128001, 128008, 128009]"), Some(vec![128001, 128008, 128009]));
        assert_eq!(ends("[]"), Some(vec![]));
        assert_eq!(ends("-1"), Some(vec![]));
    }
}
