//! Damaged and malicious `tokenizer.json` files.

use std::fs;

use crate::common::{self, fixture};
use grove_text::{TextError, catch_panic, tokenizer_json};
use serde_json::{Value, json};
use tokenizers::Tokenizer;

/// Returns a tokenizer of three words with some parts replaced.
fn words(parts: Value) -> Value {
    let mut file = json!({
        "version": "1.0",
        "added_tokens": [],
        "normalizer": null,
        "pre_tokenizer": { "type": "Whitespace" },
        "post_processor": null,
        "decoder": null,
        "model": { "type": "WordLevel", "vocab": { "the": 0, "river": 1, "?": 2 }, "unk_token": "?" },
    });
    for (name, part) in parts.as_object().unwrap() {
        file[name] = part.clone();
    }
    file
}

fn read(content: impl AsRef<[u8]>) -> grove_text::Result<Tokenizer> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokenizer.json");
    fs::write(&file, content).unwrap();
    tokenizer_json::from_file(&file)
}

/// Asserts that the file is refused in one short sentence that contains the words.
#[track_caller]
fn refused(content: impl AsRef<[u8]>, words: &[&str]) {
    let error = read(content).map(|_| ()).unwrap_err();
    assert!(matches!(&error, TextError::Config { file, .. } if file.ends_with("tokenizer.json")), "{error}");
    let message = error.to_string();
    assert!(message.len() < 700, "{} bytes", message.len());
    for word in words {
        assert!(message.contains(word), "no '{word}': {message}");
    }
}

fn added(content: &str, normalized: bool) -> Value {
    json!({
        "id": 3, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": normalized, "special": true,
    })
}

#[test]
fn reads_a_whole_file_without_its_cutting_and_padding() {
    let cutting = json!({ "direction": "Right", "max_length": 1, "strategy": "LongestFirst", "stride": 0 });
    let tokenizer = read(words(json!({ "truncation": cutting })).to_string()).unwrap();
    assert_eq!(tokenizer.encode("the river ?", true).unwrap().get_ids(), [0, 1, 2]);
    let missing = tokenizer_json::from_file("nowhere/tokenizer.json").map(|_| ()).unwrap_err();
    assert!(matches!(missing, TextError::File(_)), "{missing}");
}

#[test]
fn rejects_a_damaged_character_map() {
    // 4 bytes; a trie of four gigabytes; an offset out of the trie; invalid base64.
    let mut outside = 1024u32.to_le_bytes().to_vec();
    outside.extend((1u32 << 18).to_le_bytes());
    outside.extend([0; 1020]);
    let maps = [
        ("AAAAAA==", "no such size"),
        ("/////wAAAAAAAAAAAAAA", "no such size"),
        (&*base64::encode(outside), "out of its trie"),
        ("(no base64)", "not base64"),
    ];
    for (map, reason) in maps {
        let step = json!({ "type": "Precompiled", "precompiled_charsmap": map });
        refused(words(json!({ "normalizer": step })).to_string(), &["normalizer", reason]);
        let nested = json!({ "type": "Sequence", "normalizers": [{ "type": "Sequence", "normalizers": [step] }] });
        refused(words(json!({ "normalizer": nested })).to_string(), &["normalizer", reason]);
    }
    let number = json!({ "type": "Precompiled", "precompiled_charsmap": 7 });
    refused(words(json!({ "normalizer": number })).to_string(), &["normalizer", "not a string"]);
}

#[test]
fn rejects_tokens_that_take_minutes_to_look_for() {
    let long = "x".repeat(50_000);
    refused(words(json!({ "added_tokens": [added(&long, false)] })).to_string(), &["added_tokens", "50000 bytes"]);
    let many: Vec<Value> = (0..70_000).map(|i| added(&format!("<{i}>"), false)).collect();
    refused(words(json!({ "added_tokens": many })).to_string(), &["added_tokens", "70000"]);
    // A normalizer that makes a short token long.
    let tokens: Vec<Value> = (0..100).map(|i| added(&format!("{i:0100}"), true)).collect();
    let longer = json!({ "type": "Replace", "pattern": { "String": "0" }, "content": "0".repeat(1000) });
    refused(words(json!({ "added_tokens": tokens, "normalizer": longer })).to_string(), &["added_tokens", "4 MiB"]);
}

#[test]
fn rejects_replacements_that_multiply() {
    let double = json!({ "type": "Replace", "pattern": { "String": "a" }, "content": "aa" });
    let steps: Vec<Value> = vec![double; 60];
    let normalizer = json!({ "type": "Sequence", "normalizers": steps });
    refused(words(json!({ "normalizer": normalizer })).to_string(), &["normalizer", "times longer"]);
    let decoder = json!({ "type": "Sequence", "decoders": steps });
    refused(words(json!({ "decoder": decoder })).to_string(), &["decoder", "times longer"]);
    let whole = json!({ "type": "Replace", "pattern": { "Regex": "." }, "content": "b".repeat(1 << 17) });
    refused(words(json!({ "normalizer": whole })).to_string(), &["normalizer", "times longer"]);
    let many = json!({ "type": "Sequence", "pretokenizers": vec![json!({ "type": "Whitespace" }); 300] });
    refused(words(json!({ "pre_tokenizer": many })).to_string(), &["pre_tokenizer", "256 steps"]);
}

#[test]
fn rejects_pieces_and_words_that_are_too_long() {
    let long = "x".repeat(20_000);
    let unigram = json!({ "type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], [long, -1.0]] });
    refused(words(json!({ "model": unigram })).to_string(), &["model", "20000 bytes"]);
    let words_of = |longest: u64| {
        json!({
            "type": "WordPiece", "vocab": { "[UNK]": 0, "a": 1 }, "unk_token": "[UNK]",
            "continuing_subword_prefix": "##", "max_input_chars_per_word": longest,
        })
    };
    refused(words(json!({ "model": words_of(1 << 40) })).to_string(), &["max_input_chars_per_word"]);
    read(words(json!({ "model": words_of(100) })).to_string()).unwrap();
    let pattern = format!("({}x)", "y|".repeat(10_000));
    let split = json!({ "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated", "invert": false });
    refused(words(json!({ "pre_tokenizer": split })).to_string(), &["pre_tokenizer", "regular expression"]);
}

/// Files whose reading panics in the library.
#[test]
fn turns_panics_of_the_library_into_errors() {
    let whole = words(json!({ "decoder": { "type": "Fuse" } })).to_string();
    let broken = whole.replace(r#"{"type":"Fuse"}"#, r#"{"type":"Fuse"#);
    assert_ne!(whole, broken);
    refused(&broken, &["tokenizer"]);
    for decoder in [json!({ "type": "Nonsense" }), json!(7), json!("x".repeat(1 << 20)), json!([[[[]]]])] {
        refused(words(json!({ "decoder": decoder })).to_string(), &["tokenizer"]);
    }
    for normalizer in [json!({ "type": "Precompiled" }), json!({ "type": "Replace", "pattern": { "Regex": "(" } })] {
        refused(words(json!({ "normalizer": normalizer })).to_string(), &["tokenizer"]);
    }
    let deep = "[".repeat(100_000);
    refused(whole.replace(r#"{"type":"Fuse"}"#, &deep), &["tokenizer"]);
}

/// Oniguruma gives up on this pattern, and its crate panics.
#[test]
fn a_regular_expression_that_never_ends_is_an_error_where_it_is_used() {
    let pattern = json!({ "Regex": "(x+x+)+y" });
    let split = json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false });
    let tokenizer = read(words(json!({ "pre_tokenizer": split })).to_string()).unwrap();
    assert_eq!(tokenizer.encode("river", true).unwrap().get_ids(), [1]);
    let error = catch_panic(|| tokenizer.encode("x".repeat(100), true).map(|_| ())).unwrap_err();
    assert!(error.len() < 400, "{error}");
    // The tokenizer is still usable.
    assert_eq!(tokenizer.encode("river", true).unwrap().get_ids(), [1]);
}

#[test]
fn truncated_or_changed_files_give_an_error_or_a_tokenizer() {
    let models =
        ["../../models/tests/fixtures/gpt2/tokenizer/tokenizer.json", "../../models/assets/bert-austen/tokenizer.json"];
    for path in models {
        let whole = fs::read(path).unwrap();
        for length in (0..whole.len()).step_by(whole.len() / 60) {
            assert!(read(&whole[..length]).is_err());
        }
        let mut next = common::fixed_sequence();
        for _ in 0..120 {
            let mut bytes = whole.clone();
            for _ in 0..=next(4) {
                // Mostly in the parts other than the vocabulary.
                let place = if next(4) == 0 { next(bytes.len()) } else { next(bytes.len().min(3000)) };
                bytes[place] = next(128) as u8;
            }
            let Ok(tokenizer) = read(bytes) else { continue };
            let encoded = catch_panic(|| tokenizer.encode("The river Ａ１ﬁ\u{3000}runs <sep> \u{1}past 川は\n", true));
            if let Ok(Ok(encoded)) = encoded {
                let _ = catch_panic(|| tokenizer.decode(encoded.get_ids(), false));
            }
        }
    }
}

/// Published tokenizers with parts that grove's own do not have.
#[test]
fn accepts_the_parts_of_published_files() {
    let llama = json!({
        "normalizer": { "type": "Sequence", "normalizers": [
            { "type": "Prepend", "prepend": "▁" },
            { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        ]},
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
            { "type": "ByteFallback" }, { "type": "Fuse" }, { "type": "Strip", "content": " ", "start": 1, "stop": 0 },
        ]},
        "added_tokens": [added("<s>", true), added("</s>", true)],
    });
    let clip = json!({ "normalizer": { "type": "Sequence", "normalizers": [
        { "type": "NFC" }, { "type": "Replace", "pattern": { "Regex": "\\s+" }, "content": " " }, { "type": "Lowercase" },
    ]}});
    for parts in [llama, clip] {
        read(words(parts).to_string()).unwrap();
    }
    let path = fixture("models/unigram.model");
    // A file that grove writes for a SentencePiece model is read back, with its character map.
    let written = grove_text::sentencepiece::from_file(path).unwrap();
    let again = read(written.to_string(false).unwrap()).unwrap();
    let text = "The river Ａ１ﬁ runs";
    assert_eq!(again.encode(text, true).unwrap().get_ids(), written.encode(text, true).unwrap().get_ids());
}

/// Errors never quote a whole file.
#[test]
fn quotations_in_errors_are_short() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("tokenizer.json"), words(json!({})).to_string()).unwrap();
    let long = "x\u{1b}[2J".repeat(1 << 18);
    let template =
        grove_text::chat::ChatTemplate::new("{{ raise_exception(messages[0]['content']) }}", [("", "")]).unwrap();
    let error = template.render(&[grove_text::chat::Message::new("user", &long)], true).unwrap_err();
    assert!(matches!(error, TextError::Refused { .. }), "{error}");
    let refused = error.to_string();
    fs::copy(fixture("models/llama.model"), folder.path().join("tokenizer.model")).unwrap();
    let config = json!({ "add_bos_token": [long] }).to_string();
    fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
    let wrong = grove_text::sentencepiece::from_file(folder.path().join("tokenizer.model")).map(|_| ()).unwrap_err();
    for message in [refused, wrong.to_string()] {
        assert!(message.len() < 1000 && !message.contains('\u{1b}'), "{} bytes", message.len());
    }
}
