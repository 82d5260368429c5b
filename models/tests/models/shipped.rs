//! The shipped models against transformers. Fixture: tools/fixtures/shipped.py.

use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::Flex;
use grove_models::{CausalLm, Gpt2, Llama, Pretrained};
use grove_text::{Tokenizer, chat_template};
use serde::Deserialize;
use serde_json::json;
use std::path::Path;

#[derive(Deserialize)]
struct Reference {
    context: usize,
    tokens: usize,
    first_ids: Vec<u32>,
    loss_of_first_windows: f64,
    windows: usize,
}

fn reference(kind: &str) -> Reference {
    let text = std::fs::read(format!("tests/fixtures/{kind}/shipped.json")).expect("a fixture");
    serde_json::from_slice(&text).expect("JSON")
}

type Ids = Tensor<Flex, 2, Int>;

fn gpt2() -> Gpt2<Flex> {
    Gpt2::from_path("assets/gpt2-austen", &Default::default(), None).expect("a model").0
}

fn llama(dtype: Option<DType>) -> Llama<Flex> {
    Llama::from_path("assets/llama-austen", &Default::default(), dtype).expect("a model").0
}

/// Asserts that the loss on the held-out text equals transformers'. Neither model was trained on it.
fn check_loss(kind: &str, loss_of: impl Fn(Ids, Ids) -> Tensor<Flex, 1>) {
    let (reference, directory) = (reference(kind), Path::new("assets").join(format!("{kind}-austen")));
    let tokenizer = Tokenizer::from_path(directory).expect("a tokenizer");
    let text = std::fs::read_to_string("assets/gpt2-austen/held_out.txt").expect("text");
    let mut ids = tokenizer.encode(&text).expect("tokens");
    ids.extend(tokenizer.end_of_text());
    assert_eq!(ids.len(), reference.tokens);
    assert_eq!(ids[..64], reference.first_ids);

    let (rows, context) = (reference.windows, reference.context);
    let window = |shift: usize| -> Ids {
        let values: Vec<i64> = ids[shift..shift + rows * context].iter().map(|&id| i64::from(id)).collect();
        Tensor::from_data(TensorData::new(values, [rows, context]), &Default::default())
    };
    let loss = f64::from(loss_of(window(0), window(1)).into_scalar());
    assert!((loss - reference.loss_of_first_windows).abs() < 1e-4, "{loss}, {}", reference.loss_of_first_windows);
}

#[test]
fn held_out_loss_matches_transformers() {
    let gpt2 = gpt2();
    check_loss("gpt2", |ids, targets| gpt2.next_token_loss(ids, targets, None));
    // 16-bit weights, unchanged and widened.
    for dtype in [None, Some(DType::F32)] {
        let llama = llama(dtype);
        check_loss("llama", |ids, targets| llama.next_token_loss(ids, targets, None));
    }
}

#[test]
fn shipped_models_are_small() {
    for name in ["gpt2-austen", "gpt-neo-austen", "llama-austen", "llama-austen-chat"] {
        let files = std::fs::read_dir(Path::new("assets").join(name)).expect("a directory");
        let files = files.map(|file| file.expect("a file"));
        let model = files
            .filter(|file| !["held_out.txt", "loss.svg", "README.md"].iter().any(|name| file.file_name() == *name));
        let bytes: u64 = model.map(|file| file.metadata().expect("metadata").len()).sum();
        assert!(bytes <= 8_000_000, "{name}: {bytes} bytes of weights and tokenizer");
    }
}

/// tools/dialogues/make.py renders the dialogues of the training set in this form.
#[test]
fn chat_template_has_the_form_of_the_dialogues() {
    let template = chat_template("assets/llama-austen-chat").expect("a valid template").expect("a template");
    let message = |role: &str, content: &str| json!({ "role": role, "content": content });
    let talk = [
        message("system", "Answer in one word."),
        message("user", " Hello.\n"),
        message("assistant", "Good day to you."),
        message("user", "Who are you?"),
    ];
    let expected = "<|endoftext|>S: Answer in one word.\nQ: Hello.\nA: Good day to you.\nQ: Who are you?\nA:";
    assert_eq!(template.render(&talk, true).expect("text"), expected);
    let error = template.render(&[message("tool", "5")], true).expect_err("an unknown role").to_string();
    assert!(error.contains("and not tool"), "{error}");
}
