//! End-to-end tests of the example `gpt2`: output, exit status and error messages.

use serde_json::Value;
use std::{fs, path::Path};

use crate::common::{Example, damaged, fixture};

const GPT2: Example = Example("gpt2");

fn reference() -> Vec<Value> {
    let text = fs::read_to_string(fixture("tiny_text/reference.json")).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn round_trips_text_like_transformers() {
    for case in reference() {
        let prompt = case["prompt"].as_str().expect("text");
        for backend in ["flex", "candle"] {
            let model = fixture("tiny_text");
            let common = ["--model", &model, "--backend", backend, "--json", "--prompt", prompt];
            let made =
                GPT2.json(&[&common[..], &["--temperature", "0", "--max-new-tokens", "40", "--ignore-eos"]].concat());
            assert_eq!(made["prompt_ids"], case["prompt_ids"], "{backend} {prompt:?}");
            assert_eq!(made["generated_ids"], case["greedy_ids"], "{backend} {prompt:?}");
            assert_eq!(made["text"], case["text"], "{backend} {prompt:?}");
            assert!(made["tokens_per_second"].as_f64() > Some(0.0) && made["first_token_seconds"].is_f64());

            let scored = GPT2.json(&[&common[..], &["--score"]].concat());
            let apart = |key: &str, expected: &str| {
                (scored[key].as_f64().expect("number") / case[expected].as_f64().expect("number") - 1.0).abs()
            };
            assert!(apart("loss", "prompt_loss") < 1e-4 && apart("perplexity", "prompt_perplexity") < 1e-3);
        }
    }
}

#[test]
fn standard_input_is_a_prompt_and_text_streams_to_standard_output() {
    let case = &reference()[0];
    let arguments = ["--model", &fixture("tiny_text"), "--temperature", "0", "--max-new-tokens", "40", "--ignore-eos"];
    let prompt = case["prompt"].as_str().expect("text");
    let output = GPT2.run(&arguments, prompt);
    let expected = format!("{prompt}{}\n", case["text"].as_str().expect("text"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert!(String::from_utf8_lossy(&output.stderr).contains("tokens per second"));
}

#[test]
fn numbers_need_no_tokenizer() {
    let model = fixture("tiny_a");
    let made = GPT2.json(&["--model", &model, "--prompt-ids", "5,17,40", "--samples", "3", "--seed", "7", "--json"]);
    let again = GPT2.json(&["--model", &model, "--prompt-ids", "5,17,40", "--samples", "3", "--seed", "7", "--json"]);
    assert_eq!(made["generated_ids"], again["generated_ids"]);
    assert_eq!(made["generated_ids"].as_array().map(Vec::len), Some(3));
    assert_eq!(made["text"], serde_json::json!([null, null, null]));
}

#[test]
fn a_stop_string_ends_the_text_before_it() {
    let case = &reference()[0];
    let text = case["text"].as_str().expect("text");
    let middle = text.char_indices().nth(6).expect("long enough").0;
    let stop: String = text[middle..].chars().take(3).collect();
    let prompt = case["prompt"].as_str().expect("text");
    let made = GPT2.json(&[
        "--model",
        &fixture("tiny_text"),
        "--prompt",
        prompt,
        "--temperature",
        "0",
        "--ignore-eos",
        "--stop",
        &stop,
        "--json",
    ]);
    assert_eq!(made["text"].as_str(), Some(&text[..text.find(&stop).expect("it is in there")]));
}

#[test]
fn the_summary_reads_no_weights() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    fs::copy(fixture("tiny_a/config.json"), directory.path().join("config.json")).expect("copied");
    let model = directory.path().to_str().expect("text");
    let output = GPT2.run(&["--model", model, "--summary"], "");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("h.0-2.mlp.c_proj.weight") && table.contains("24,216 parameters"), "{table}");
    let counted = GPT2.json(&["--model", "gpt2-xl", "--summary", "--json"]);
    assert_eq!(counted["parameters"], 1_557_611_200u64);
    let types = counted["memory"].as_object().map(|memory| memory.keys().cloned().collect::<Vec<_>>());
    assert_eq!(types, Some(vec!["f32".to_owned(), "f16 or bf16".to_owned()]), "a GPT-2 is never quantized in memory");
}

#[test]
fn wrong_usage_has_status_two() {
    let model = fixture("tiny_a");
    GPT2.assert_refused(&["--backend", "cude"], 2, &["unknown backend 'cude'", "flex, candle, cuda, wgpu, rocm"]);
    if !grove::backend::BackendName::Rocm.is_compiled() {
        GPT2.assert_refused(&["--backend", "rocm"], 2, &["not compiled in", "--features rocm"]);
    }
    match grove::backend::DeviceSpec::new(grove::backend::BackendName::Cuda, 0).probe() {
        Ok(()) => println!("skipped: there is a CUDA device here, so its absence cannot be tested"),
        Err(error) => GPT2.assert_refused(&["--backend", "cuda", "--model", &model], 2, &[&error.to_string()]),
    }
    GPT2.assert_refused(&["--device-index", "3", "--model", &model], 2, &["no device 3"]);
    GPT2.assert_refused(&["--backend", "candle", "--dtype", "bf16"], 2, &["candle", "bf16"]);
    GPT2.assert_refused(&["--prompt", ""], 2, &["prompt is empty"]);
    GPT2.assert_refused(&["--temperature", "NaN"], 2, &["temperature"]);
    GPT2.assert_refused(&["--top-p", "1.5"], 2, &["top-p"]);
    GPT2.assert_refused(&["--temperature", "-1"], 2, &["temperature"]);
    GPT2.assert_refused(&["--stop", ""], 2, &["--stop is empty"]);
    let sampled =
        |top_k: &str| GPT2.json(&["--json", "--max-new-tokens", "6", "--top-k", top_k])["generated_ids"].clone();
    assert_eq!(sampled("0"), sampled("100000"), "0 samples among all");
    GPT2.assert_refused(&["--samples", "0"], 2, &["--samples"]);
    GPT2.assert_refused(&["--prompt-ids", "5,x"], 2, &["--prompt-ids"]);
    GPT2.assert_refused(&["--no-such-option"], 2, &["--no-such-option"]);
}

#[test]
fn impossible_prompts_are_refused() {
    let model = fixture("tiny_a");
    GPT2.assert_refused(&["--model", &model, "--prompt-ids", "5,67"], 1, &["67", "outside the vocabulary"]);
    let long = vec!["1"; 38].join(",");
    GPT2.assert_refused(&["--model", &model, "--prompt-ids", &long], 1, &["38 tokens", "context is 37"]);
    GPT2.assert_refused(&["--model", &model, "--prompt-ids", "3", "--score"], 1, &["at least two tokens"]);
    GPT2.assert_refused(&["--model", &model, "--prompt", "text"], 1, &["no tokenizer", "--prompt-ids"]);
}

#[test]
fn models_that_are_not_there() {
    GPT2.assert_refused(&["--model", "./nowhere"], 1, &["./nowhere"]);
    GPT2.assert_refused(&["--model", "nobody/nothing"], 1, &["nobody/nothing"]);
    let empty = tempfile::tempdir().expect("a temporary directory");
    let empty = empty.path().to_str().expect("text");
    GPT2.assert_refused(&["--model", empty, "--prompt-ids", "1"], 1, &["no weights in", empty, "model.safetensors"]);
}

#[track_caller]
fn assert_damage_is_named(directory: &Path, words: &[&str]) {
    GPT2.assert_refused(&["--model", directory.to_str().expect("text"), "--prompt-ids", "1,2"], 1, words);
}

#[test]
fn broken_files_are_named() {
    let weights = "model.safetensors";
    let truncated = damaged("tiny_a", weights, |bytes| bytes[..bytes.len() / 2].to_vec());
    assert_damage_is_named(truncated.path(), &[weights]);
    let enormous = damaged("tiny_a", weights, |bytes| [&(1u64 << 60).to_le_bytes()[..], &bytes[8..]].concat());
    assert_damage_is_named(enormous.path(), &[weights]);
    let page = damaged("tiny_a", weights, |_| b"<!DOCTYPE html><html>".to_vec());
    assert_damage_is_named(page.path(), &[weights]);
    let config = "config.json";
    let unfinished = damaged("tiny_a", config, |bytes| bytes[..bytes.len() - 5].to_vec());
    assert_damage_is_named(unfinished.path(), &[config, "line"]);
    let replace = |from: &'static str, to: &'static str| {
        move |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("text");
            assert!(text.contains(from), "the fixture has {from}");
            text.replace(from, to).into_bytes()
        }
    };
    let indivisible = damaged("tiny_a", config, replace("\"n_head\": 3", "\"n_head\": 5"));
    assert_damage_is_named(indivisible.path(), &[config, "not divisible"]);
    let nan = damaged("tiny_a", config, replace("1e-05", "NaN"));
    assert_damage_is_named(nan.path(), &[config]);
    let deeper = damaged("tiny_a", config, replace("\"n_layer\": 3", "\"n_layer\": 4"));
    assert_damage_is_named(deeper.path(), &["h.3.", "missing"]);
    let shallower = damaged("tiny_a", config, replace("\"n_layer\": 3", "\"n_layer\": 2"));
    assert_damage_is_named(shallower.path(), &["h.2.", "unexpected"]);
    let wider = damaged("tiny_a", config, replace("\"n_embd\": 24", "\"n_embd\": 27"));
    assert_damage_is_named(wider.path(), &["wte.weight", "24", "27"]);
    let tokenizer = damaged("tiny_text", "tokenizer.json", |_| b"{}".to_vec());
    GPT2.assert_refused(
        &["--model", tokenizer.path().to_str().expect("text"), "--prompt", "x"],
        1,
        &["tokenizer.json"],
    );
}
