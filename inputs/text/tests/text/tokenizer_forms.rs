//! Tokenizers in all published formats: the class that the files name, its settings, and added tokens. Fixtures:
//! tools/fixtures/tokenizer_forms.py.

use grove_text::{Tokenizer, Truncation, chat::Message, chat_template};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

#[derive(Deserialize)]
struct Case {
    base: String,
    files: BTreeMap<String, Value>,
    texts: Vec<String>,
    ids: Vec<Vec<u32>>,
    /// Byte range of each token in its text, for encoders.
    #[serde(default)]
    offsets: Vec<Vec<(usize, usize)>>,
    #[serde(default)]
    pairs: Vec<(String, String)>,
    /// A greeting rendered by the chat template.
    rendered: Option<String>,
    #[serde(default)]
    pair_ids: Vec<Vec<u32>>,
    #[serde(default)]
    pair_types: Vec<Vec<u32>>,
    /// A long text, the overlap of its windows, and the windows.
    windows: Option<(String, usize, Vec<Vec<u32>>)>,
}

fn fixtures() -> PathBuf {
    Path::new("tests/fixtures/tokenizers").into()
}

/// Creates a folder with a vocabulary of the fixtures and files beside it: JSON files, and texts under their whole names.
fn folder(base: &str, files: &BTreeMap<String, Value>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let names = [
        ("json", "tokenizer.json"),
        ("vocab", "vocab.json"),
        ("merges", "merges.txt"),
        ("txt", "vocab.txt"),
        ("model", "tokenizer.model"),
    ];
    for (ending, name) in names {
        let file = fixtures().join(format!("{base}.{ending}"));
        if file.is_file() {
            fs::copy(file, folder.path().join(name)).unwrap();
        }
    }
    for (name, content) in files {
        let (file, text) = match content {
            Value::String(text) => (folder.path().join(name), text.clone()),
            json => (folder.path().join(format!("{name}.json")), json.to_string()),
        };
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }
    folder
}

#[test]
fn every_form_has_the_tokens_of_its_class() {
    let cases: BTreeMap<String, Case> =
        serde_json::from_slice(&fs::read(fixtures().join("cases.json")).unwrap()).unwrap();
    assert!(cases.len() > 50 && cases.values().filter(|case| case.windows.is_some()).count() > 3);
    let mut wrong = vec![];
    for (name, case) in cases {
        let folder = folder(&case.base, &case.files);
        let tokenizer = Tokenizer::from_path(folder.path()).unwrap();
        if let Some(rendered) = &case.rendered {
            let template = chat_template(folder.path()).unwrap().expect("a template");
            let found = template.render(&[Message::new("user", "Hello")], true).unwrap();
            if found != *rendered {
                wrong.push(format!("{name}: the template gives {found:?}, not {rendered:?}"));
            }
        }
        for (text, ids) in case.texts.iter().zip(&case.ids) {
            let found = tokenizer.encode(text).unwrap();
            if found != *ids {
                wrong.push(format!("{name}: {text:?} is {found:?}, not {ids:?}"));
            }
        }
        if let Some((text, stride, windows)) = &case.windows {
            let found = tokenizer.encode_windows(text, None, usize::MAX, *stride).unwrap();
            let found: Vec<Vec<u32>> = found.into_iter().map(|window| window.text.ids).collect();
            if found != *windows {
                wrong.push(format!("{name}: the windows are {found:?}, not {windows:?}"));
            }
        }
        for (text, offsets) in case.texts.iter().zip(&case.offsets) {
            let encoded = tokenizer.encode_text(text, None, None, Truncation::default()).unwrap();
            // transformers counts in characters, and a token can end inside a character.
            let whole = |at: usize| (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap();
            let found: Vec<_> = encoded.offsets.iter().map(|range| (whole(range.start), whole(range.end))).collect();
            if found != *offsets {
                wrong.push(format!("{name}: the tokens of {text:?} are at {found:?}, not {offsets:?}"));
            }
        }
        for (((a, b), ids), types) in case.pairs.iter().zip(&case.pair_ids).zip(&case.pair_types) {
            let found = tokenizer.encode_text(a, Some(b), None, Truncation::default()).unwrap().text;
            if found.ids != *ids || found.token_types != *types {
                wrong.push(format!("{name}: {a:?} and {b:?} are {found:?}, not {ids:?} {types:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn beside(base: &str, files: Value) -> grove_text::Result<Tokenizer> {
    let files = serde_json::from_value(files).unwrap();
    Tokenizer::from_path(folder(base, &files).path())
}

#[test]
fn settings_that_change_tokens_are_not_ignored() {
    let refused = [
        ("gpt2", json!({"tokenizer_config": {"split_special_tokens": true}}), "split_special_tokens is true"),
        ("gpt2", json!({"tokenizer_config": {"errors": "strict"}}), "errors is \"strict\""),
        (
            "gpt2",
            json!({"tokenizer_config": {"fast_tokenizer_files": ["tokenizer.json", "tokenizer.5.0.0.json"]}}),
            "fast_tokenizer_files is [\"tokenizer.json\",\"tokenizer.5.0.0.json\"]",
        ),
        ("gpt2", json!({"tokenizer_config": {"fix_mistral_regex": true}}), "fix_mistral_regex is true"),
        (
            "pieces",
            json!({"tokenizer_config": {"do_lower_case": "no"}}),
            "do_lower_case is \"no\"; it must be true or false",
        ),
        (
            "gpt2_pair",
            json!({"tokenizer_config": {"tokenizer_class": "CLIPTokenizer"}}),
            "tokenizer_class is CLIPTokenizer",
        ),
        ("pieces", json!({"tokenizer_config": {"tokenizer_class": "BertJapaneseTokenizer"}}), "BertJapaneseTokenizer"),
        ("pieces", json!({"config": {"model_type": "camembert"}}), "model_type is camembert, and such a tokenizer"),
        ("pieces", json!({"tokenizer_config": {"tokenizer_class": "LlamaTokenizer"}}), "is not read from a vocab.txt"),
        (
            "llama",
            json!({"tokenizer_config": {"tokenizer_class": "T5Tokenizer"}}),
            "tokenizer_class is T5Tokenizer, and such a tokenizer is not read from a tokenizer.model",
        ),
        ("llama", json!({"config": {"model_type": "gpt2"}}), "model_type is gpt2"),
        ("gpt2_pair", json!({"config": {"model_type": "bert"}}), "model_type is bert, and such a tokenizer"),
        ("gpt2", json!({"tokenizer_config": {"max_len": "512"}}), "max_len is \"512\"; it must be a number of tokens"),
        ("gpt2", json!({"added_tokens": {"<|user|>": 400}}), "should have the id 400, but gets 330"),
        ("gpt2", json!({"tokenizer_config": {"truncation_side": "top"}}), "truncation_side is \"top\""),
    ];
    for (base, files, reason) in refused {
        let error = beside(base, files).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("/"), "{reason}: {error}");
    }
    let harmless = json!({"tokenizer_config": {"split_special_tokens": false, "padding_side": "left", "note": "ours",
        "clean_up_tokenization_spaces": true, "errors": "replace", "tokenizer_class": "CLIPTokenizer"}});
    beside("gpt2", harmless).unwrap();
}

#[test]
fn the_truncation_side_comes_from_the_file() {
    let files = |side: &str| json!({"tokenizer_config": {"tokenizer_class": "BertTokenizer", "truncation_side": side}});
    let ids = |side: &str| {
        let tokenizer = beside("pieces", files(side)).unwrap();
        let encoded = tokenizer.encode_text("the ferry left it", None, Some(4), Truncation::default()).unwrap();
        assert!(encoded.truncated);
        encoded.text.ids.iter().map(|&id| tokenizer.id_to_token(id).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(ids("right"), ["[CLS]", "the", "ferry", "[SEP]"]);
    assert_eq!(ids("left"), ["[CLS]", "left", "it", "[SEP]"]);
}

/// transformers reads these models by classes that number the pieces otherwise than the file.
#[test]
fn sentencepiece_models_of_other_classes_are_refused_by_name() {
    for name in ["sentencepiece.bpe.model", "spiece.model"] {
        let folder = tempfile::tempdir().unwrap();
        fs::copy(fixtures().join("llama.model"), folder.path().join(name)).unwrap();
        for (config, reason) in [
            ("{}", "no file names a tokenizer_class"),
            (r#"{"model_type": "xlm-roberta"}"#, "model_type is xlm-roberta"),
            (r#"{"tokenizer_class": "CamembertTokenizer"}"#, "tokenizer_class is CamembertTokenizer"),
            (r#"{"tokenizer_class": "LlamaTokenizer"}"#, "tokenizer_class is LlamaTokenizer"),
        ] {
            fs::write(folder.path().join("config.json"), config).unwrap();
            for place in [folder.path().to_owned(), folder.path().join(name)] {
                let error = Tokenizer::from_path(place).unwrap_err().to_string();
                let expected =
                    format!("{name}: {reason}, and such a tokenizer is not read from a {name}; save a tokenizer.json");
                assert!(error.contains(&expected), "{error}");
            }
        }
        // A tokenizer.json beside it is read.
        fs::copy(fixtures().join("gpt2.json"), folder.path().join("tokenizer.json")).unwrap();
        assert_eq!(Tokenizer::from_path(folder.path()).unwrap().vocab_size(), 330);
    }
}

#[test]
fn the_length_limit_comes_from_the_files() {
    let length = |config: Value| beside("pieces", json!({"tokenizer_config": config})).unwrap().model_max_length();
    assert_eq!(length(json!({"model_max_length": 512})), Some(512));
    assert_eq!(length(json!({"max_len": 512.0})), Some(512));
    assert_eq!(length(json!({"model_max_length": 128, "max_len": 512})), Some(128));
    // No limit: as transformers writes it, null even with the older name, and no positive number.
    assert_eq!(length(json!({"model_max_length": 1e30})), None);
    assert_eq!(length(json!({"model_max_length": null, "max_len": 512})), None);
    assert_eq!(length(json!({"model_max_length": -1})), None);
    assert_eq!(length(json!({})), None);
    let tokenizer = beside("pieces", json!({"tokenizer_config": {"model_max_length": 8}})).unwrap();
    let text = "the ferry left the harbour it left the ferry";
    // The stride is reduced with the window, and a shorter window is kept.
    let windows = |max_len: usize| tokenizer.encode_windows(text, None, max_len, (max_len / 4).min(128)).unwrap();
    assert!(windows(512).iter().all(|window| window.text.ids.len() <= 8));
    assert!(windows(6).iter().all(|window| window.text.ids.len() <= 6));
    assert!(tokenizer.encode_text(text, None, None, Truncation::default()).unwrap().text.ids.len() > 8);
}

/// Expected: as in transformers 4 and in the published tokenizer.json.
#[test]
fn the_mask_of_roberta_takes_the_space_before_it() {
    let tokenizer = beside("roberta_pair", json!({"config": {"model_type": "roberta"}})).unwrap();
    let ids = |text: &str| tokenizer.encode(text).unwrap();
    assert_eq!(ids("the <mask> ferry"), ids("the<mask> ferry"));
    assert_eq!((tokenizer.mask_token(), tokenizer.cls_token()), (Some(4), Some(0)));
}

#[test]
fn windows_of_a_pair_have_the_types_of_the_pair() {
    let tokenizer = beside("pieces", json!({"config": {"model_type": "bert"}})).unwrap();
    let windows = tokenizer.encode_windows("it", Some("the ferry left the harbour it left"), 7, 1).unwrap();
    assert!(windows.len() > 2);
    for window in windows {
        let types = &window.text.token_types;
        assert_eq!(types[..3], [0, 0, 0]);
        assert!(types[3..].iter().all(|kind| *kind == 1), "{types:?}");
    }
}
