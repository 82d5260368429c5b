//! Tokenizers in each published format. Fixtures: tools/fixtures/gpt2.py.

use grove_text::{TextError, Tokenizer};
use serde::Deserialize;
use std::path::PathBuf;

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
}

fn fixtures() -> PathBuf {
    PathBuf::from("../../models/tests/fixtures/gpt2")
}

/// Texts of many scripts with transformers' ids.
fn cases() -> Vec<Case> {
    serde_json::from_slice(&std::fs::read(fixtures().join("tokenizer/cases.json")).unwrap()).unwrap()
}

#[test]
fn every_form_gives_the_reference_ids() {
    let folder = fixtures().join("tokenizer");
    for form in ["", "tokenizer.json", "vocab_merges", "original"] {
        let tokenizer = Tokenizer::from_path(folder.join(form)).unwrap();
        assert_eq!(tokenizer.vocab_size(), 400, "{form}");
        for Case { text, ids } in cases() {
            assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{form}: {text:?}");
            assert_eq!(tokenizer.decode(&ids).unwrap(), text, "{form}");
        }
    }
}

#[test]
fn missing_tokenizer_error_lists_the_files_searched_for() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    std::fs::write(folder.path().join("vocab.json"), "{}").unwrap(); // without merges.txt
    for missing in [folder.path(), &nowhere] {
        let error = Tokenizer::from_path(missing).unwrap_err();
        assert!(matches!(&error, TextError::NoTokenizer { path, .. } if path == missing), "{error}");
        let message = error.to_string();
        for name in ["tokenizer.json", "vocab.json", "merges.txt", "encoder.json", "vocab.bpe"] {
            assert!(message.contains(name), "{message}");
        }
    }
}

#[test]
fn broken_tokenizers_name_their_file() {
    let original = |name: &str| std::fs::read(fixtures().join("tokenizer/vocab_merges").join(name)).unwrap();
    let whole = std::fs::read(fixtures().join("tokenizer/tokenizer.json")).unwrap();
    let cut = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();

    let mut broken = vec![]; // files in the folder, and the file at fault
    for bytes in [vec![], b"{}".to_vec(), b"[1, 2".to_vec(), vec![0xff, 0xfe, 0, 1], cut(&whole)] {
        broken.push((vec![("tokenizer.json", bytes)], "tokenizer.json"));
    }
    for bytes in [vec![], b"[]".to_vec(), br#"{"a": -1}"#.to_vec(), vec![0xff; 9], cut(&original("vocab.json"))] {
        broken.push((vec![("vocab.json", bytes), ("merges.txt", original("merges.txt"))], "vocab.json"));
    }
    for bytes in [b"#version: 0.2\na b c d\n".to_vec(), b"no_pair\n".to_vec(), vec![0xff; 9], "木 龘\n".into()] {
        broken.push((vec![("vocab.json", original("vocab.json")), ("merges.txt", bytes)], "merges.txt"));
    }
    for (files, at_fault) in broken {
        let folder = tempfile::tempdir().unwrap();
        for (name, bytes) in files {
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let error = Tokenizer::from_path(folder.path()).unwrap_err();
        println!("{error}");
        assert!(matches!(&error, TextError::Tokenizer { path, .. } if path.starts_with(folder.path())), "{error}");
        assert!(error.to_string().contains(at_fault), "{error} does not name {at_fault}");
    }
}

#[test]
fn foreign_token_error_names_the_tokenizer() {
    let file = fixtures().join("tokenizer/tokenizer.json");
    let tokenizer = Tokenizer::from_path(&file).unwrap();
    let text = "The old oak";
    let largest = *tokenizer.encode(text).unwrap().iter().max().unwrap();
    assert!(tokenizer.encode_for(text, 1000, largest as usize + 1).is_ok());
    let error = tokenizer.encode_for(text, 1000, largest as usize).unwrap_err().to_string();
    assert!(error.starts_with(&format!("{} returned token {largest}", file.display())), "{error}");
    let trained = Tokenizer::train_bpe(&["the cat"], 300).unwrap();
    let error = trained.encode_for("the cat", 9, 1).unwrap_err().to_string();
    assert!(error.starts_with("the tokenizer returned token"), "{error}");
}

/// `--model model.safetensors` in the model's own directory.
#[test]
fn a_bare_file_name_is_in_the_current_directory() {
    let Err(error) = Tokenizer::beside("no.safetensors") else { panic!("there is none in inputs/text/") };
    assert!(error.to_string().starts_with(".: no tokenizer here"), "{error}");
}
