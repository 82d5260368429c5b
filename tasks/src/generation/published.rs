use grove_backend::Backend;
use grove_files::{JsonFields, read_json};
use grove_models::{CausalLm, EndTokens, GENERATION_KEYS, ModelFiles, Result, SAMPLING_KEYS};
use grove_text::Tokenizer;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::path::Path;

use super::{GenerateOptions, Sampling, TokenRules, gguf_sampling::recommended};

/// Name of the file.
const FILE: &str = "generation_config.json";

/// transformers' default of `top_k` for files that sample.
const TOP_K: i64 = 50;

/// One string or a list of strings.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text, or a list of texts")]
enum Texts {
    One(String),
    Any(Vec<String>),
}

impl GenerateOptions {
    /// Reads the options with which a model was published: the `generation_config.json` in its directory or beside its
    /// weights file, else the keys of the same names in its `config.json`, as in transformers. They include the
    /// sampling options (greedy with `"do_sample": false`), the tokens and strings that end a sequence, its maximum
    /// length, and [rules](TokenRules). Unknown keys of the file are named once on standard error.
    ///
    /// `sampling` applies if the file does not specify `do_sample`; the file's `temperature`, `top_k`, `top_p` and `min_p`
    /// replace its own, and a temperature of 0 is greedy. A repetition penalty in the file applies in any case. If
    /// `do_sample` is true and there is no `top_k`, it is 50, as in transformers. The sampling settings in the metadata of
    /// a GGUF file replace those of `sampling`, as llama.cpp's defaults; the settings that are not supported are named
    /// once on standard error.
    ///
    /// # Errors
    /// The file cannot be read, is not valid JSON, has invalid values, or requests an unsupported decoding method, such
    /// as beam search. The error names the file and the key.
    pub fn published(model: impl AsRef<Path>, sampling: Sampling) -> Result<Self> {
        Self::published_in(&ModelFiles::at(model.as_ref())?, sampling)
    }

    /// As [`published`](Self::published), for the files of a model. A `generation_config.json` of its adapter comes first.
    ///
    /// # Errors
    /// As [`published`](Self::published).
    pub fn published_in(files: &ModelFiles, sampling: Sampling) -> Result<Self> {
        let sampling = recommended(files, sampling)?;
        let of_adapter = files.adapter().map(|adapter| adapter.join(FILE));
        let places = [of_adapter, Some(files.file(FILE)), Some(files.file("config.json"))];
        let Some(file) = places.into_iter().flatten().find(|file| file.is_file()) else {
            return Ok(Self { sampling, ..Self::default() });
        };
        let mut fields: Map<String, Value> = read_json(&file)?;
        if !file.ends_with(FILE) {
            // The other keys of a `config.json` are the model's.
            fields.retain(|key, _| GENERATION_KEYS.knows(key));
        }
        Self::read(&mut JsonFields::new(&file, fields), sampling)
    }

    fn read(keys: &mut JsonFields, sampling: Sampling) -> Result<Self> {
        let sampling = sampling_of(keys, sampling)?;
        let without_effect: &[&str] = if sampling.temperature > 0.0 { &[] } else { &SAMPLING_KEYS };
        keys.clone().without(without_effect).check(&GENERATION_KEYS)?;
        let rules = rules_of(keys)?;
        let (most, length) = (count(keys, "max_new_tokens")?, count(keys, "max_length")?);
        let stop_strings = match keys.get("stop_strings")? {
            None => vec![],
            Some(Texts::One(text)) => vec![text],
            Some(Texts::Any(texts)) => texts,
        };
        let default = Self::default();
        Ok(Self {
            max_new_tokens: most.unwrap_or(if length.is_some() { usize::MAX } else { default.max_new_tokens }),
            max_length: length.filter(|_| most.is_none()),
            sampling,
            rules,
            stop_strings,
            end_tokens: keys.get("eos_token_id")?.map(|ends: EndTokens| ends.to_vec()),
            use_cache: keys.get("use_cache")?.unwrap_or(default.use_cache),
            ..default
        })
    }
}

/// Reads a count; 0 means absent.
fn count(keys: &mut JsonFields, key: &'static str) -> Result<Option<usize>> {
    Ok(keys.get::<usize>(key)?.filter(|&number| number > 0))
}

fn sampling_of(keys: &mut JsonFields, default: Sampling) -> Result<Sampling> {
    let (samples, temperature) = (keys.get("do_sample")?, keys.get("temperature")?);
    let top_k: Option<i64> = keys.get("top_k")?;
    let (top_p, min_p) = (keys.get("top_p")?, keys.get("min_p")?);
    // 0 means all tokens in transformers' files, -1 in vLLM's.
    let limit = |k: i64| usize::try_from(k).ok().filter(|&k| k > 0);
    let mut sampling = match samples {
        Some(true) => Sampling {
            temperature: temperature.unwrap_or(1.0),
            top_k: limit(top_k.unwrap_or(TOP_K)),
            top_p,
            min_p,
            ..Sampling::default()
        },
        Some(false) => Sampling::greedy(),
        None => Sampling {
            temperature: temperature.unwrap_or(default.temperature),
            top_k: top_k.map_or(default.top_k, limit),
            top_p: top_p.or(default.top_p),
            min_p: min_p.or(default.min_p),
            ..default
        },
    };
    sampling.repetition_penalty = keys.get("repetition_penalty")?.unwrap_or(sampling.repetition_penalty);
    sampling.validate().map_err(|error| keys.error(error.to_string()))?;
    Ok(sampling)
}

fn rules_of(keys: &mut JsonFields) -> Result<TokenRules> {
    let tokens = |keys: &mut JsonFields, key| -> Result<Vec<u32>> {
        Ok(keys.get(key)?.map_or(vec![], |tokens: EndTokens| tokens.to_vec()))
    };
    let rules = TokenRules {
        encoder_repetition_penalty: keys.get("encoder_repetition_penalty")?.unwrap_or(1.0),
        no_repeat_ngram_size: keys.get("no_repeat_ngram_size")?.unwrap_or(0),
        bad_words_ids: keys.get("bad_words_ids")?.unwrap_or_default(),
        min_length: keys.get("min_length")?.unwrap_or(0),
        min_new_tokens: keys.get("min_new_tokens")?.unwrap_or(0),
        forced_eos_token_id: tokens(keys, "forced_eos_token_id")?,
        exponential_decay_length_penalty: keys.get("exponential_decay_length_penalty")?,
        suppress_tokens: tokens(keys, "suppress_tokens")?,
        begin_suppress_tokens: tokens(keys, "begin_suppress_tokens")?,
    };
    let penalty = rules.encoder_repetition_penalty;
    if !(penalty > 0.0 && penalty.is_finite()) {
        let reason = format!("`encoder_repetition_penalty` is {penalty}; it must be a positive number");
        return Err(keys.error(reason).into());
    }
    if rules.exponential_decay_length_penalty.is_some_and(|(_, factor)| !(factor > 0.0 && factor.is_finite())) {
        let reason = "`exponential_decay_length_penalty` must be [start, factor], with a positive factor";
        return Err(keys.error(reason.into()).into());
    }
    Ok(rules)
}

/// Returns the token that ends each document of a training text: the tokenizer's own end token, unless the model ends
/// sequences with other tokens. The model's end tokens are those of the `generation_config.json` beside `source`, the
/// files of a pretrained model, else those of the model's configuration.
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
    use serde_json::json;
    use std::collections::{BTreeSet, HashMap};

    #[test]
    fn follows_generation_config() {
        let directory = tempfile::tempdir().unwrap();
        let write = |text: &str| std::fs::write(directory.path().join("generation_config.json"), text).unwrap();
        let ours = Sampling { temperature: 0.8, ..Sampling::default() };
        let read = || GenerateOptions::published(directory.path(), ours.clone()).unwrap();
        assert_eq!(read(), GenerateOptions { sampling: ours.clone(), ..GenerateOptions::default() });

        // Without `do_sample`, the numbers of the file replace those of the default.
        write(r#"{"temperature": 0.2}"#);
        let cooler = Sampling { temperature: 0.2, ..ours.clone() };
        assert_eq!((read().sampling, read().end_tokens), (cooler, None));
        write(r#"{"temperature": 0.0}"#);
        assert_eq!(read().sampling, Sampling { temperature: 0.0, ..ours.clone() }, "greedy");
        write(r#"{"top_k": 5, "top_p": 0.9, "min_p": 0.1}"#);
        let fewer = Sampling { top_k: Some(5), top_p: Some(0.9), min_p: Some(0.1), ..ours.clone() };
        assert_eq!(read().sampling, fewer);
        write(r#"{"temperature": null, "top_k": 0}"#);
        let limited = Sampling { top_k: Some(3), ..ours.clone() };
        assert_eq!(GenerateOptions::published(directory.path(), limited).unwrap().sampling, ours);
        write(r#"{"temperature": -1.0}"#);
        let error = GenerateOptions::published(directory.path(), ours.clone()).unwrap_err().to_string();
        assert!(error.contains("generation_config.json") && error.contains("temperature is -1"), "{error}");
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

    /// Returns a GGUF file with two sampling settings.
    fn gguf_with_sampling() -> Vec<u8> {
        let mut file = std::fs::read("../models/tests/fixtures/llama/gguf/f16.gguf").unwrap();
        let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
        let temperature = [text("general.sampling.temp"), [&6u32.to_le_bytes()[..], &0.25f32.to_le_bytes()].concat()];
        let top_k = [text("general.sampling.top_k"), [&5u32.to_le_bytes()[..], &7i32.to_le_bytes()].concat()];
        let url = [text("general.url"), 8u32.to_le_bytes().to_vec()];
        let mut more = [temperature, top_k, url].concat().concat();
        // A text of such a length that the tensors stay aligned.
        let length = (more.len() + 8).next_multiple_of(32) - more.len() - 8;
        more.extend(text(&"x".repeat(length)));
        let count = u64::from_le_bytes(file[16..24].try_into().unwrap()) + 3;
        file[16..24].copy_from_slice(&count.to_le_bytes());
        file.splice(24..24, more);
        file
    }

    #[test]
    fn generation_config_comes_before_gguf() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("model.gguf");
        std::fs::write(&path, gguf_with_sampling()).unwrap();
        let ours = Sampling { top_p: Some(0.5), ..Sampling::default() };
        let read = || GenerateOptions::published(&path, ours.clone()).unwrap().sampling;
        let expected = Sampling { temperature: 0.25, top_k: Some(7), ..ours.clone() };
        assert_eq!(read(), expected);
        std::fs::write(directory.path().join(FILE), r#"{"repetition_penalty": 1.5}"#).unwrap();
        assert_eq!(read(), Sampling { repetition_penalty: 1.5, ..expected.clone() });
        std::fs::write(directory.path().join(FILE), r#"{"temperature": 0.5}"#).unwrap();
        assert_eq!(read(), Sampling { temperature: 0.5, ..expected });
        std::fs::write(directory.path().join(FILE), r#"{"do_sample": false}"#).unwrap();
        assert_eq!(read(), Sampling::greedy());
    }

    /// All keys of transformers' class. Each is followed, refused, or has no effect.
    #[test]
    fn knows_all_keys() {
        let text = include_str!("../../../models/tests/fixtures/config_keys.json");
        let keys: HashMap<String, Vec<String>> = serde_json::from_str(text).unwrap();
        let keys = &keys["GenerationConfig"];
        let mut asked = JsonFields::new(Path::new("generation_config.json"), Map::new());
        GenerateOptions::read(&mut asked, Sampling::default()).unwrap();
        let followed: BTreeSet<&str> = GENERATION_KEYS.followed.iter().copied().collect();
        assert_eq!(*asked.read_keys(), followed, "the keys that are read are those that are called followed");
        let unknown: Vec<&String> = keys.iter().filter(|key| !GENERATION_KEYS.knows(key)).collect();
        assert!(unknown.is_empty() && keys.len() > 70, "{unknown:?}");
        assert!(SAMPLING_KEYS.iter().all(|key| GENERATION_KEYS.refused.iter().any(|refused| refused.key == *key)));
    }

    #[test]
    fn follows_lengths_rules_and_ends() {
        let read = |fields: Value| {
            let Value::Object(fields) = fields else { unreachable!() };
            GenerateOptions::read(&mut JsonFields::new(Path::new("generation_config.json"), fields), Sampling::greedy())
        };
        let default = GenerateOptions { sampling: Sampling::greedy(), ..GenerateOptions::default() };
        assert_eq!(read(json!({})).unwrap(), default);
        let found =
            read(json!({"max_new_tokens": 7, "max_length": 20, "stop_strings": ".", "use_cache": false})).unwrap();
        assert!(!found.use_cache);
        assert_eq!((found.max_new_tokens, found.max_length, &*found.stop_strings), (7, None, &[".".to_owned()][..]));
        let found = read(json!({"max_length": 20, "stop_strings": [".", "!"]})).unwrap();
        assert_eq!((found.most_after(8), found.most_after(30), found.stop_strings.len()), (12, 1, 2));
        let rules = json!({"suppress_tokens": [3, -1], "begin_suppress_tokens": null, "bad_words_ids": [[1], [2, 3]],
            "no_repeat_ngram_size": 2, "min_new_tokens": 4, "min_length": 5, "forced_eos_token_id": 9,
            "exponential_decay_length_penalty": [6, 1.5], "encoder_repetition_penalty": 1.25});
        let expected = TokenRules {
            encoder_repetition_penalty: 1.25,
            no_repeat_ngram_size: 2,
            bad_words_ids: vec![vec![1], vec![2, 3]],
            min_length: 5,
            min_new_tokens: 4,
            forced_eos_token_id: vec![9],
            exponential_decay_length_penalty: Some((6, 1.5)),
            suppress_tokens: vec![3],
            begin_suppress_tokens: vec![],
        };
        assert_eq!(read(rules).unwrap().rules, expected);

        let sampled = |mut fields: Value| {
            fields["do_sample"] = true.into();
            read(fields).unwrap().sampling.top_k
        };
        assert_eq!(sampled(json!({})), Some(50), "transformers' default");
        for all in [json!(0), json!(-1)] {
            assert_eq!(sampled(json!({"top_k": all})), None);
        }
        assert_eq!(sampled(json!({"top_k": null})), Some(50));

        for (fields, key) in [
            (json!({"num_beams": 4}), "num_beams is 4"),
            (json!({"guidance_scale": 1.5}), "guidance_scale is 1.5"),
            (json!({"do_sample": true, "typical_p": 0.9}), "typical_p is 0.9"),
            (json!({"sequence_bias": [[[1], 2.0]]}), "sequence_bias is [[[1],2.0]]"),
            (json!({"top_p": "high"}), "`top_p` is \"high\""),
            (json!({"max_new_tokens": -3}), "`max_new_tokens` is -3"),
            (json!({"bad_words_ids": [1]}), "`bad_words_ids` is [1]"),
            (json!({"encoder_repetition_penalty": 0}), "`encoder_repetition_penalty` is 0"),
        ] {
            let error = read(fields).unwrap_err().to_string();
            assert!(error.contains("generation_config.json") && error.contains(key), "{error}");
        }
        let neutral = json!({"num_beams": 1, "typical_p": 1.0, "guidance_scale": 1.0, "do_sample": true, "epsilon_cutoff": 0.0,
            "remove_invalid_values": false, "diversity_penalty": 0.0, "chat_format": "chatml", "max_time": null});
        assert!(read(neutral).is_ok());
        assert!(read(json!({"do_sample": false, "typical_p": 0.9})).is_ok(), "greedy");
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
