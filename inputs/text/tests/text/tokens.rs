//! Tokens of transformers and of SentencePiece (`tools/fixtures/spm.py`).

use std::fs;

use crate::common::{fixture, json, texts};
use grove_text::{chat::ChatTemplate, ggml::Vocabulary, sentencepiece, special_tokens, tokenizer_settings};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// Compares a tokenizer with a case on every text, and counts the comparisons.
fn compare(name: &str, tokenizer: &Tokenizer, case: &Value, texts: &[&str]) -> usize {
    let ids = |text: &str, ends: bool| tokenizer.encode(text, ends).unwrap().get_ids().to_vec();
    let listed = |value: &Value| serde_json::from_value::<Vec<Vec<u32>>>(value.clone()).unwrap();
    let plain = listed(&case["plain"]);
    let full = if case["full"].is_null() { plain.clone() } else { listed(&case["full"]) };
    for (place, text) in texts.iter().enumerate() {
        assert_eq!(ids(text, false), plain[place], "{name}: {text:?}");
        assert_eq!(ids(text, true), full[place], "{name}: {text:?} with its ends");
        for (key, skip) in [("shown", false), ("hidden", true)] {
            let decoded = tokenizer.decode(&full[place], skip).unwrap();
            assert_eq!(decoded, case[key][place].as_str().unwrap_or(text), "{name}: {text:?} decoded, {key}");
        }
    }
    texts.len() * 4
}

#[test]
fn tokenizer_model_gives_transformers_tokens() {
    let (all, cases) = (json("texts.json"), json("tokens.json"));
    let mut compared = 0;
    for (name, case) in cases.as_object().unwrap().iter().filter(|(name, _)| name.starts_with("spm/")) {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("tokenizer.model");
        fs::copy(fixture("models/llama.model"), &model).unwrap();
        let mut config = case["config"].clone();
        if config.get("add_bos_token").is_none() {
            // transformers 5 adds no bos token by default; grove has LLaMA's default.
            assert!(case["full"].is_null());
            config["add_bos_token"] = false.into();
        }
        fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        let tokenizer = sentencepiece::from_file(&model).unwrap();
        compared += compare(name, &tokenizer, case, &texts(&all));
    }
    assert_eq!(compared, 7 * 51 * 4);
}

/// Expected: transformers' LlamaTokenizer; tools/fixtures/tokenizer_forms.py has such folders too.
#[test]
fn the_ends_of_texts_match_the_special_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tokenizer.model");
    fs::copy(fixture("models/llama.model"), &model).unwrap();
    let write = |name: &str, content: Value| fs::write(folder.path().join(name), content.to_string()).unwrap();
    let ends = || {
        let tokenizer = sentencepiece::from_file(&model).unwrap();
        let named = special_tokens(folder.path()).unwrap();
        let role = |role: &str| named.get(role).and_then(|token| tokenizer.token_to_id(token));
        (tokenizer.encode("", true).unwrap().get_ids().to_vec(), role("bos_token"), role("eos_token"))
    };
    let mut config = json!({"add_eos_token": true, "bos_token": "<s>", "eos_token": "</s>"});
    write("tokenizer_config.json", config.clone());
    assert_eq!(ends(), (vec![1, 2], Some(1), Some(2)));
    write("special_tokens_map.json", json!({"bos_token": {"content": "</s>", "lstrip": false}, "eos_token": "<s>"}));
    assert_eq!(ends(), (vec![2, 1], Some(2), Some(1)));
    write("special_tokens_map.json", json!({"bos_token": null}));
    assert_eq!(ends(), (vec![2], None, Some(2)));
    // The newer file lists the added tokens, so that the older one is not read.
    write("special_tokens_map.json", json!({"bos_token": "</s>", "pad_token": "<unk>"}));
    config["added_tokens_decoder"] = json!({});
    write("tokenizer_config.json", config);
    assert_eq!(ends(), (vec![1, 2], Some(1), Some(2)));
    assert!(!special_tokens(folder.path()).unwrap().contains_key("pad_token"));
}

#[test]
fn lists_of_additional_tokens_are_joined() {
    let object = |value: Value| value.as_object().unwrap().clone();
    let merged = |config: Value, map: Value| {
        let merged = tokenizer_settings(object(config), || Ok::<_, ()>(object(map)));
        Value::Object(merged.unwrap())
    };
    let (config, map) =
        (json!({"extra_special_tokens": ["a"], "x": 1}), json!({"extra_special_tokens": ["b", "a"], "x": 2}));
    assert_eq!(merged(config, map.clone()), json!({"extra_special_tokens": ["a", "b"], "x": 2}));
    let listed = json!({"added_tokens_decoder": {}, "x": 1});
    assert_eq!(merged(listed.clone(), map), listed);
}

#[test]
fn other_models_give_sentencepiece_s_tokens() {
    let (all, cases) = (json("texts.json"), json("tokens.json"));
    let mut compared = 0;
    for name in ["rules", "unigram"] {
        let case = &cases[format!("sentencepiece/{name}")];
        let tokenizer = sentencepiece::from_file(fixture(&format!("models/{name}.model"))).unwrap();
        for (place, text) in texts(&all).into_iter().enumerate() {
            let Some(expected) = case["plain"][place].as_array() else { continue };
            let expected: Vec<u32> = expected.iter().map(|id| id.as_u64().unwrap() as u32).collect();
            let ids = tokenizer.encode(text, false).unwrap().get_ids().to_vec();
            assert_eq!(ids, expected, "{name}: {text:?}");
            // SentencePiece shows unknown parts as ⁇, and grove as a special token.
            if !ids.contains(&0) {
                let decoded = tokenizer.decode(&ids, true).unwrap();
                assert_eq!(decoded, case["decoded"][place].as_str().unwrap(), "{name}: {text:?} decoded");
            }
            compared += 1;
        }
    }
    assert!(compared > 70, "{compared}");
}

#[test]
fn gguf_vocabularies_give_transformers_tokens() {
    let (all, cases) = (json("texts.json"), json("tokens.json"));
    let mut compared = 0;
    for (name, case) in cases.as_object().unwrap() {
        let Some(vocabulary) = case["vocabulary"].as_str() else { continue };
        let mut entries = json(&format!("ggml/{vocabulary}.json"));
        for (key, value) in case["settings"].as_object().unwrap() {
            entries[key] = value.clone();
        }
        let vocabulary: Vocabulary = serde_json::from_value(entries).unwrap();
        compared += compare(name, &vocabulary.tokenizer().unwrap(), case, &texts(&all));
    }
    assert_eq!(compared, (9 + 5) * 51 * 4);
}

/// `tools/fixtures/gguf_tokens.py` writes the file: 49,152 tokens of SmolLM2, which has its own licence.
#[test]
#[ignore = "needs GROVE_GGUF_TOKENS, a file that tools/fixtures/gguf_tokens.py wrote"]
fn a_published_vocabulary() {
    let Ok(file) = std::env::var("GROVE_GGUF_TOKENS") else {
        println!("skipped: GROVE_GGUF_TOKENS names no file");
        return;
    };
    let file: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let vocabulary: Vocabulary = serde_json::from_value(file["vocabulary"].clone()).unwrap();
    let tokenizer = vocabulary.tokenizer().unwrap();
    for case in file["cases"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids = tokenizer.encode(text, true).unwrap().get_ids().to_vec();
        let expected: Vec<u32> = serde_json::from_value(case["ids"].clone()).unwrap();
        assert_eq!(ids, expected, "{text:?}");
        assert_eq!(tokenizer.decode(&ids, false).unwrap(), text);
    }
    let template = ChatTemplate::new(file["chat_template"].as_str().unwrap(), [("bos_token", "<|im_start|>")]).unwrap();
    let messages = file["messages"].as_array().unwrap();
    assert_eq!(template.render(messages, true).unwrap(), file["prompt"].as_str().unwrap());
}
