//! Saving of a tokenizer beside a fine-tuned model, for tokenizers with and without files of their own.
//! tools/check_tokenizer.py checks that transformers reads them identically.

use grove_text::{Tokenizer, chat::Message, chat_template};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

fn write(directory: &Path, name: &str, content: impl AsRef<[u8]>) {
    fs::write(directory.join(name), content).unwrap();
}

fn json_of(file: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

/// Reads the names and contents of a directory's files.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap())).collect()
}

const GPT2: &str = "../../models/tests/fixtures/gpt2/tokenizer";
const TEMPLATE: &str = "{% for message in messages %}<s>{{ message['content'] }}</s>{% endfor %}";

/// A LLaMA tokenizer in the format of newer repositories.
fn llama(directory: &Path) {
    let special = |id: u32, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    let tokenizer = json!({
        "version": "1.0",
        "truncation": { "direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0 },
        "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>"), special(5, "<|im_end|>")],
        "normalizer": { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": { "type": "Replace", "pattern": { "String": "▁" }, "content": " " },
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": false,
            "vocab": { "<unk>": 0, "<s>": 1, "</s>": 2, "a": 3, "▁": 4 }, "merges": [],
        },
    });
    write(directory, "tokenizer.json", tokenizer.to_string());
    let config = json!({
        "tokenizer_class": "LlamaTokenizerFast", "bos_token": { "content": "<s>", "special": true },
        "eos_token": "<|im_end|>", "pad_token": "</s>", "chat_template": TEMPLATE, "model_max_length": 2048,
    });
    write(directory, "tokenizer_config.json", serde_json::to_string_pretty(&config).unwrap());
    write(directory, "special_tokens_map.json", r#"{"bos_token": "<s>", "eos_token": "</s>"}"#);
    write(directory, "added_tokens.json", r#"{"<|im_end|>": 5}"#);
    write(directory, "chat_template.jinja", TEMPLATE);
}

#[test]
fn files_of_the_source_are_kept_as_they_are() {
    let source = tempfile::tempdir().unwrap();
    llama(source.path());
    let tokenizer = Tokenizer::from_path(source.path()).unwrap();
    let saved = tempfile::tempdir().unwrap();
    tokenizer.save(saved.path().join("model")).unwrap();
    assert_eq!(files(&saved.path().join("model")), files(source.path()));
    // Files that do not belong to the tokenizer are not copied.
    write(source.path(), "model.safetensors", "weights");
    tokenizer.save(saved.path().join("model")).unwrap();
    assert!(!saved.path().join("model/model.safetensors").exists());

    // As in transformers, the older file determines the end token, unless the newer one lists the added tokens.
    assert_eq!((tokenizer.end_of_text(), tokenizer.begin_of_text()), (Some(2), Some(1)));
    // The same if the tokenizer file itself is opened.
    let other = tempfile::tempdir().unwrap();
    let named = Tokenizer::from_path(source.path().join("tokenizer.json")).unwrap();
    named.save(other.path()).unwrap();
    assert_eq!(files(other.path()), files(&saved.path().join("model")));
    let file = other.path().join("tokenizer_config.json");
    let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    config["added_tokens_decoder"] = json!({"5": {"content": "<|im_end|>", "special": true}});
    fs::write(&file, config.to_string()).unwrap();
    assert_eq!(Tokenizer::from_path(other.path()).unwrap().end_of_text(), Some(5));
    // A model that is fine-tuned in place.
    let before = files(source.path());
    tokenizer.save(source.path()).unwrap();
    tokenizer.save(source.path().join(".")).unwrap();
    assert_eq!(files(source.path()), before);
}

#[test]
fn additional_templates_and_settings_of_sentence_encoders_are_kept() {
    let (source, saved) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    llama(source.path());
    let settings = ["sentence_roberta_config.json", "sentence_xlm-roberta_config.json"];
    settings.iter().for_each(|name| write(source.path(), name, "{}"));
    let templates = source.path().join("additional_chat_templates");
    fs::create_dir(&templates).unwrap();
    write(&templates, "tool_use.jinja", "tools");
    write(&templates, "notes.txt", "no template");
    let tokenizer = Tokenizer::from_path(source.path()).unwrap();
    tokenizer.save(saved.path()).unwrap();
    assert!(settings.iter().all(|name| saved.path().join(name).is_file()));
    let kept = files(&saved.path().join("additional_chat_templates"));
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), [("tool_use.jinja".to_owned(), b"tools".to_vec())]);
    // A model that is fine-tuned in place.
    tokenizer.save(source.path()).unwrap();
    assert_eq!(files(&templates).len(), 2);
}

#[test]
fn tokenizers_without_tokenizer_json_keep_their_own_files() {
    let saved_names = |source: &Path| {
        let saved = tempfile::tempdir().unwrap();
        Tokenizer::from_path(source).unwrap().save(saved.path()).unwrap();
        let kept = files(saved.path());
        assert!(kept.iter().all(|(name, content)| fs::read(source.join(name)).unwrap() == *content));
        kept.into_keys().collect::<Vec<_>>()
    };
    // RoBERTa's files.
    let pair = tempfile::tempdir().unwrap();
    for name in ["vocab.json", "merges.txt"] {
        fs::copy(Path::new(GPT2).join("vocab_merges").join(name), pair.path().join(name)).unwrap();
    }
    let config = json!({ "tokenizer_class": "RobertaTokenizer", "eos_token": "<|endoftext|>", "mask_token": "<mask>" });
    write(pair.path(), "tokenizer_config.json", config.to_string());
    assert_eq!(saved_names(pair.path()), ["merges.txt", "tokenizer_config.json", "vocab.json"]);
    // BERT's files.
    let words = tempfile::tempdir().unwrap();
    write(words.path(), "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nTree\n");
    write(words.path(), "tokenizer_config.json", r#"{"do_lower_case": false, "tokenizer_class": "BertTokenizer"}"#);
    assert_eq!(saved_names(words.path()), ["tokenizer_config.json", "vocab.txt"]);
    // LLaMA's files.
    let pieces = tempfile::tempdir().unwrap();
    fs::copy("tests/fixtures/models/llama.model", pieces.path().join("tokenizer.model")).unwrap();
    write(pieces.path(), "tokenizer_config.json", r#"{"add_bos_token": true, "legacy": false}"#);
    assert_eq!(saved_names(pieces.path()), ["tokenizer.model", "tokenizer_config.json"]);
    let tokenizer = Tokenizer::from_path(pieces.path()).unwrap();
    assert_eq!(tokenizer.end_of_text(), tokenizer.token_to_id("</s>"));
    assert_eq!(tokenizer.begin_of_text(), Some(1));
}

#[test]
fn trained_tokenizers_record_their_type() {
    let text = "the river runs past the trees and the trees stand by the river ".repeat(20);
    let saved = tempfile::tempdir().unwrap();
    let bytes = Tokenizer::train_bpe(&[&text], 300).unwrap();
    bytes.save(saved.path()).unwrap();
    let end = "<|endoftext|>";
    let config = json_of(saved.path().join("tokenizer_config.json"));
    let expected = json!({
        "tokenizer_class": "GPT2TokenizerFast", "bos_token": end, "eos_token": end, "unk_token": end,
    });
    assert_eq!(config, expected);
    assert_eq!(bytes.end_of_text(), Some(0));
    let again = Tokenizer::from_path(saved.path()).unwrap();
    assert_eq!(again.encode("the river").unwrap(), bytes.encode("the river").unwrap());

    let words = Tokenizer::train_wordpiece(&[&text], 500).unwrap();
    words.save(saved.path()).unwrap();
    let config = json_of(saved.path().join("tokenizer_config.json"));
    assert_eq!((&config["tokenizer_class"], &config["mask_token"]), (&"BertTokenizerFast".into(), &"[MASK]".into()));
    assert_eq!(config["eos_token"], Value::Null);
    assert_eq!(words.end_of_text(), None);
}

/// A file with a name that transformers does not know is not copied, and its tokenizer has no specific class.
#[test]
fn a_lone_file_of_another_kind_is_not_called_gpt2() {
    let source = tempfile::tempdir().unwrap();
    llama(source.path());
    let lone = tempfile::tempdir().unwrap();
    fs::copy(source.path().join("tokenizer.json"), lone.path().join("mine.json")).unwrap();
    let tokenizer = Tokenizer::from_path(lone.path().join("mine.json")).unwrap();
    let saved = tempfile::tempdir().unwrap();
    tokenizer.save(saved.path()).unwrap();
    let config = json_of(saved.path().join("tokenizer_config.json"));
    let expected = json!({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
    });
    assert_eq!(config, expected);
    assert_eq!(Tokenizer::from_path(saved.path()).unwrap().encode("a a").unwrap(), [3, 4, 3]);
}

#[test]
fn a_gguf_file_leaves_its_special_tokens_and_chat_template() {
    let file = Path::new("../../models/tests/fixtures/llama/gguf/f16.gguf");
    let tokenizer = Tokenizer::from_path(file).unwrap();
    let saved = tempfile::tempdir().unwrap();
    tokenizer.save(saved.path()).unwrap();
    let config = json_of(saved.path().join("tokenizer_config.json"));
    assert_eq!(config["tokenizer_class"], "PreTrainedTokenizerFast");
    let again = Tokenizer::from_path(saved.path()).unwrap();
    assert!(tokenizer.end_of_text().is_some());
    assert_eq!((again.end_of_text(), again.begin_of_text()), (tokenizer.end_of_text(), tokenizer.begin_of_text()));
    assert_eq!(again.encode("The trees").unwrap(), tokenizer.encode("The trees").unwrap());
    let message = [Message::new("user", "Hello")];
    let render = |model: &Path| chat_template(model).unwrap().expect("a template").render(&message, true).unwrap();
    write(saved.path(), "config.json", "{}");
    assert_eq!(render(saved.path()), render(file));
}

/// Regular expressions in a file can make the library panic. The error names the text and the file, and nothing is
/// printed.
#[test]
fn a_tokenizer_that_breaks_down_is_an_error() {
    let source = tempfile::tempdir().unwrap();
    llama(source.path());
    let mut file = json_of(source.path().join("tokenizer.json"));
    let pattern = json!({ "Regex": "(x+x+)+y" });
    file["pre_tokenizer"] = json!({ "type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false });
    write(source.path(), "tokenizer.json", file.to_string());
    let tokenizer = Tokenizer::from_path(source.path()).unwrap();
    assert_eq!(tokenizer.encode("a a").unwrap(), [3, 4, 3]);
    let error = tokenizer.encode(&"x".repeat(100)).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.len() < 500, "{error}");
    let error = tokenizer.encode_text(&"x".repeat(100), None, None, Default::default()).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.len() < 500, "{error}");
}
