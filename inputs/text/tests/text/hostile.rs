//! Damaged and malicious files.

use std::fs;

use crate::common::{self, fixture, json};
use grove_files::FileError;
use grove_text::{
    TextError,
    ggml::Vocabulary,
    sentencepiece::{self, Options},
};
use prost::Message;

/// Fields of a model that these tests corrupt.
#[derive(Clone, PartialEq, Message)]
struct Model {
    #[prost(message, repeated, tag = "1")]
    pieces: Vec<Piece>,
    #[prost(message, optional, tag = "2")]
    trainer: Option<Trainer>,
    #[prost(message, optional, tag = "3")]
    normalizer: Option<Normalizer>,
}

#[derive(Clone, PartialEq, Message)]
struct Piece {
    #[prost(string, tag = "1")]
    piece: String,
    #[prost(float, tag = "2")]
    score: f32,
    #[prost(int32, tag = "3")]
    kind: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Trainer {
    #[prost(int32, tag = "3")]
    model: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Normalizer {
    #[prost(bytes = "vec", tag = "2")]
    charsmap: Vec<u8>,
}

fn model(kind: i32, pieces: &[(&str, f32, i32)]) -> Model {
    let piece = |&(text, score, kind): &(&str, f32, i32)| Piece { piece: text.into(), score, kind };
    Model { pieces: pieces.iter().map(piece).collect(), trainer: Some(Trainer { model: kind }), normalizer: None }
}

fn refused(bytes: &[u8], reason: &str) {
    let error = sentencepiece::from_bytes(bytes, &Options::default()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn errors_of_broken_models_name_the_cause() {
    refused(b"", "it is empty");
    refused(b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull");
    refused(b"IQ== 0\nIg== 1\n", "tiktoken");
    refused(b"<!doctype html>", "it is a web page");
    refused(&[0xff; 40], "decode");
    refused(&model(2, &[]).encode_to_vec(), "no pieces");
    refused(&model(3, &[("a", 0.0, 1)]).encode_to_vec(), "kind 3");
    refused(&model(2, &[("a", 0.0, 1), ("b", 0.0, 1), ("a", 0.0, 1)]).encode_to_vec(), "tokens 0 and 2 are both \"a\"");
    refused(&model(2, &[("a", f32::NAN, 1)]).encode_to_vec(), "token 0, \"a\", is not a number");
    refused(&model(1, &[("a", 0.0, 1)]).encode_to_vec(), "no piece for unknown characters");
    let long = "x".repeat(20_000);
    refused(&model(2, &[(&long, 0.0, 1)]).encode_to_vec(), "too long");
    refused(&model(1, &[("<unk>", 0.0, 2), (&long, 0.0, 1)]).encode_to_vec(), "20000 bytes");
    let mut mapped = model(2, &[("a", 0.0, 1)]);
    mapped.normalizer = Some(Normalizer { charsmap: vec![255; 40] });
    refused(&mapped.encode_to_vec(), "map of characters");
}

#[test]
fn truncated_or_changed_files_give_an_error_or_a_tokenizer() {
    for name in ["llama", "rules", "unigram"] {
        let whole = fs::read(fixture(&format!("models/{name}.model"))).unwrap();
        for length in (0..whole.len()).step_by(97) {
            let _ = sentencepiece::from_bytes(&whole[..length], &Options::default());
        }
        let mut next = common::fixed_sequence();
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..=next(6) {
                let place = next(bytes.len());
                bytes[place] = next(256) as u8;
            }
            if let Ok(tokenizer) = sentencepiece::from_bytes(&bytes, &Options::default()) {
                let text = "The river Ａ１ﬁ\u{3000}runs <sep> \u{1}past Größe 川は\n";
                let ids = tokenizer.encode(text, true).unwrap().get_ids().to_vec();
                tokenizer.decode(&ids, false).unwrap();
            }
        }
    }
}

#[test]
fn files_beside_a_model_are_named_when_they_are_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("tokenizer.model");
    let missing = sentencepiece::from_file(&model).map(|_| ()).unwrap_err();
    assert!(matches!(&missing, TextError::File(FileError::System { path, .. }) if *path == model), "{missing}");
    fs::copy(fixture("models/llama.model"), &model).unwrap();
    let plain = sentencepiece::from_file(&model).unwrap();
    assert_eq!(plain.encode("", true).unwrap().get_ids(), [1], "LLaMA's texts begin with <s>");
    let cases = [
        ("{", "is not JSON"),
        ("[]", "not a JSON object"),
        (r#"{"add_bos_token": "yes"}"#, "add_bos_token"),
        (r#"{"bos_token": "<nowhere>"}"#, "\"<nowhere>\""),
        (r#"{"added_tokens_decoder": []}"#, "added_tokens_decoder"),
        (r#"{"added_tokens_decoder": {"x": {"content": "y"}}}"#, "\"x\""),
        (r#"{"added_tokens_decoder": {"700": {"content": 3}}}"#, "700"),
        (r#"{"added_tokens_decoder": {"9000": {"content": "<pad>"}}}"#, "the id 9000, but gets 640"),
    ];
    for (config, reason) in cases {
        fs::write(folder.path().join("tokenizer_config.json"), config).unwrap();
        let error = sentencepiece::from_file(&model).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(reason) && error.contains("tokenizer_config.json"), "{config}: {error}");
    }
    fs::remove_file(folder.path().join("tokenizer_config.json")).unwrap();
    fs::write(folder.path().join("added_tokens.json"), r#"{"<pad>": 640}"#).unwrap();
    let padded = sentencepiece::from_file(&model).unwrap();
    assert_eq!(padded.encode("<pad>", false).unwrap().get_ids(), [640]);
}

/// Corrupts one part of a vocabulary.
type Change = fn(&mut Vocabulary);

fn vocabulary(name: &str) -> Vocabulary {
    serde_json::from_value(json(&format!("ggml/{name}.json"))).unwrap()
}

#[test]
fn inconsistent_vocabularies_are_rejected_with_the_reason() {
    let cases: [(&str, Change, &str); 15] = [
        ("gpt2", |v| v.model = "bert".into(), "\"bert\""),
        ("gpt2", |v| v.pre = Some("no-such".into()), "\"no-such\""),
        ("gpt2", |v| v.merges = None, "no merges"),
        ("gpt2", |v| v.tokens.clear(), "0 tokens, but"),
        ("gpt2", |v| *v = Vocabulary { model: "gpt2".into(), merges: Some(vec![]), ..Default::default() }, "no tokens"),
        ("gpt2", |v| v.bos = Some(1 << 30), "bos token is 1073741824"),
        ("gpt2", |v| v.padding = Some(u32::MAX), "padding token"),
        ("gpt2", |v| v.merges.as_mut().unwrap().push("whole".into()), "not two tokens"),
        ("gpt2", |v| v.merges.as_mut().unwrap().push(String::new()), "not two tokens"),
        ("gpt2", |v| v.merges.as_mut().unwrap().push("é x".into()), "vocabulary"),
        ("gpt2", |v| v.tokens[500] = v.tokens[499].clone(), "tokens 499 and 500"),
        ("llama", |v| v.scores.as_mut().unwrap().truncate(3), "640 tokens, but 3 scores"),
        ("llama", |v| v.token_types.as_mut().unwrap().push(1), "but 641 token types"),
        ("llama", |v| v.scores = None, "neither scores nor merges"),
        ("llama", |v| v.scores.as_mut().unwrap()[7] = f32::NAN, "token 7"),
    ];
    for (name, change, reason) in cases {
        let mut vocabulary = vocabulary(name);
        change(&mut vocabulary);
        let error = vocabulary.tokenizer().map(|_| ()).unwrap_err();
        assert!(matches!(&error, TextError::Vocabulary(said) if said.contains(reason)), "{reason}: {error}");
    }
}

#[test]
fn odd_vocabularies_that_do_occur_are_read() {
    let mut empty = vocabulary("gpt2");
    let last = empty.tokens.len() as u32;
    empty.tokens.extend([String::new(), "two words".into(), "｜begin▁of▁text｜".into()]);
    empty.token_types.as_mut().unwrap().extend([5, 1, 3]);
    let tokenizer = empty.tokenizer().unwrap();
    assert_eq!(tokenizer.id_to_token(last).as_deref(), Some(format!("[EMPTY_{last}]").as_str()));
    assert_eq!(tokenizer.decode(&[last + 1], false).unwrap(), "two words");
    assert_eq!(tokenizer.encode("｜begin▁of▁text｜", false).unwrap().get_ids(), [last + 2]);
    assert_eq!(tokenizer.decode(&[last + 2], false).unwrap(), "｜begin▁of▁text｜");
    assert_eq!(tokenizer.decode(&[last + 2], true).unwrap(), "");
}

/// Quadratic time in a million tokens would take days.
#[test]
fn reads_a_million_tokens() {
    let letters = |number: usize| format!("{number:08x}");
    let tokens: Vec<String> = (0..1 << 20).map(letters).collect();
    let scores = Some((0..tokens.len()).map(|id| -(id as f32)).collect());
    let vocabulary = Vocabulary { model: "llama".into(), tokens, scores, ..Default::default() };
    assert_eq!(vocabulary.tokenizer().unwrap().get_vocab_size(true), 1 << 20);
    let special: Vec<String> = (0..1 << 20).map(letters).collect();
    let token_types = Some(vec![3; special.len()]);
    let merges = Some(Vec::new());
    let vocabulary = Vocabulary { model: "gpt2".into(), tokens: special, token_types, merges, ..Default::default() };
    let error = vocabulary.tokenizer().map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("added tokens; the maximum"), "{error}");
}
