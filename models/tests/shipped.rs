//! The model that ships, against transformers. Fixture: tools/fixtures/shipped.py.
#![recursion_limit = "256"]

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Flex;
use grove_models::{GenerateOptions, Gpt2, Tokenizer, generate, generation::Sampling};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Reference {
    context: usize,
    tokens: usize,
    first_ids: Vec<u32>,
    loss_of_first_windows: f64,
    windows: usize,
    prompt: String,
    prompt_ids: Vec<u32>,
    greedy: Vec<u32>,
}

fn reference() -> Reference {
    let text = std::fs::read("tests/fixtures/gpt2/shipped.json").expect("a fixture");
    serde_json::from_slice(&text).expect("JSON")
}

fn directory() -> &'static Path {
    Path::new("assets/gpt2-austen")
}

#[test]
fn held_out_text_is_as_likely_as_transformers_says() {
    let reference = reference();
    let tokenizer = Tokenizer::from_path(directory()).expect("a tokenizer");
    let text = std::fs::read_to_string(directory().join("held_out.txt")).expect("text");
    let mut ids = tokenizer.encode(&text).expect("tokens");
    ids.extend(tokenizer.end_of_text());
    assert_eq!(ids.len(), reference.tokens);
    assert_eq!(ids[..64], reference.first_ids);

    let (model, _) = Gpt2::<Flex>::from_path(directory(), &Default::default(), None).expect("a model");
    let (rows, context) = (reference.windows, reference.context);
    let window = |shift: usize| -> Tensor<Flex, 2, Int> {
        let values: Vec<i64> = ids[shift..shift + rows * context].iter().map(|&id| i64::from(id)).collect();
        Tensor::from_data(TensorData::new(values, [rows, context]), &Default::default())
    };
    let loss = f64::from(model.next_token_loss(window(0), window(1), None).into_scalar());
    assert!((loss - reference.loss_of_first_windows).abs() < 1e-4, "{loss}, {}", reference.loss_of_first_windows);
}

#[test]
fn it_continues_as_in_transformers() {
    let reference = reference();
    let tokenizer = Tokenizer::from_path(directory()).expect("a tokenizer");
    assert_eq!(tokenizer.encode(&reference.prompt).expect("tokens"), reference.prompt_ids);
    let (model, _) = Gpt2::<Flex>::from_path(directory(), &Default::default(), None).expect("a model");
    let options = GenerateOptions {
        max_new_tokens: reference.greedy.len(),
        sampling: Sampling { temperature: 0.0, ..Sampling::default() },
        ..GenerateOptions::default()
    };
    let written = generate(&model, &[reference.prompt_ids], &options, |_, _| true).expect("text");
    assert_eq!(written[0].ids, reference.greedy);
}

#[test]
fn it_is_small() {
    let files = std::fs::read_dir(directory()).expect("a directory").map(|file| file.expect("a file"));
    let model =
        files.filter(|file| !["held_out.txt", "loss.svg", "README.md"].iter().any(|name| file.file_name() == *name));
    let bytes: u64 = model.map(|file| file.metadata().expect("metadata").len()).sum();
    assert!(bytes <= 8_000_000, "{bytes} bytes of weights and tokenizer");
}
