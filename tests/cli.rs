//! The example `gpt2` as a person uses it: what it prints, its exit status, and what it says about bad input.

use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The example's binary, which `cargo test` builds beside the tests.
fn program() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    let target = test.ancestors().nth(2).expect("tests lie in target/PROFILE/deps");
    let program = target.join("examples").join(format!("gpt2{}", std::env::consts::EXE_SUFFIX));
    assert!(program.is_file(), "{} is missing; build it with `cargo build --examples`", program.display());
    program
}

/// Tests run in the folder of their package; a path compiled in would be that of whoever built last.
fn fixture(name: &str) -> String {
    format!("models/tests/fixtures/gpt2/{name}")
}

/// Runs the example away from any network and any cache of this machine.
fn run(arguments: &[&str], input: &str) -> Output {
    let home = tempfile::tempdir().expect("a temporary directory");
    let mut command = Command::new(program());
    command.args(arguments).env("HF_HOME", home.path()).env("HF_HUB_OFFLINE", "1").env_remove("HF_TOKEN");
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the example starts");
    // It may end without reading.
    let _ = std::io::Write::write_all(&mut child.stdin.take().expect("piped"), input.as_bytes());
    child.wait_with_output().expect("the example ends")
}

fn json(arguments: &[&str]) -> Value {
    let output = run(arguments, "");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object on standard output")
}

/// Fails unless the example ends with the status and one sentence on standard error that has all the words.
#[track_caller]
fn assert_refused(arguments: &[&str], status: i32, words: &[&str]) {
    let output = run(arguments, "");
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {message}");
    assert!(output.stdout.is_empty(), "{arguments:?} wrote to standard output");
    assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    for word in words {
        assert!(message.contains(word), "{arguments:?} does not say '{word}': {message}");
    }
}

fn reference() -> Vec<Value> {
    let text = fs::read_to_string(fixture("tiny_text/reference.json")).expect("a fixture");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn text_in_text_out_as_transformers_does() {
    for case in reference() {
        let prompt = case["prompt"].as_str().expect("text");
        for backend in ["flex", "candle"] {
            let model = fixture("tiny_text");
            let common = ["--model", &model, "--backend", backend, "--json", "--prompt", prompt];
            let made = json(&[&common[..], &["--temperature", "0", "--max-new-tokens", "40", "--ignore-eos"]].concat());
            assert_eq!(made["prompt_ids"], case["prompt_ids"], "{backend} {prompt:?}");
            assert_eq!(made["generated_ids"], case["greedy_ids"], "{backend} {prompt:?}");
            assert_eq!(made["text"], case["text"], "{backend} {prompt:?}");
            assert!(made["tokens_per_second"].as_f64() > Some(0.0) && made["first_token_seconds"].is_f64());

            let scored = json(&[&common[..], &["--score"]].concat());
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
    let output = run(&arguments, prompt);
    let expected = format!("{prompt}{}\n", case["text"].as_str().expect("text"));
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    assert!(String::from_utf8_lossy(&output.stderr).contains("tokens per second"));
}

#[test]
fn numbers_need_no_tokenizer() {
    let model = fixture("tiny_a");
    let made = json(&["--model", &model, "--prompt-ids", "5,17,40", "--samples", "3", "--seed", "7", "--json"]);
    let again = json(&["--model", &model, "--prompt-ids", "5,17,40", "--samples", "3", "--seed", "7", "--json"]);
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
    let made = json(&[
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
    let output = run(&["--model", model, "--summary"], "");
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("h.2.mlp.c_proj.weight") && table.contains("24,216 parameters"), "{table}");
    let counted = json(&["--model", "gpt2-xl", "--summary", "--json"]);
    assert_eq!(counted["parameters"], 1_557_611_200u64);
}

#[test]
fn wrong_usage_has_status_two() {
    let model = fixture("tiny_a");
    assert_refused(&["--backend", "cude"], 2, &["unknown backend 'cude'", "flex, candle, cuda, wgpu, rocm"]);
    if !grove::backend::BackendName::Rocm.is_compiled() {
        assert_refused(&["--backend", "rocm"], 2, &["not compiled in", "--features rocm"]);
    }
    match grove::backend::DeviceSpec::new(grove::backend::BackendName::Cuda, 0).probe() {
        Ok(()) => println!("skipped: there is a CUDA device here, so its absence cannot be tested"),
        Err(error) => assert_refused(&["--backend", "cuda", "--model", &model], 2, &[&error.to_string()]),
    }
    assert_refused(&["--device-index", "3", "--model", &model], 2, &["no device 3"]);
    assert_refused(&["--prompt", ""], 2, &["prompt is empty"]);
    assert_refused(&["--temperature", "NaN"], 2, &["temperature"]);
    assert_refused(&["--top-p", "1.5"], 2, &["top-p"]);
    assert_refused(&["--top-k", "0"], 2, &["top-k"]);
    assert_refused(&["--samples", "0"], 2, &["--samples"]);
    assert_refused(&["--prompt-ids", "5,x"], 2, &["--prompt-ids"]);
    assert_refused(&["--no-such-option"], 2, &["--no-such-option"]);
}

#[test]
fn impossible_prompts_are_refused() {
    let model = fixture("tiny_a");
    assert_refused(&["--model", &model, "--prompt-ids", "5,67"], 1, &["67", "outside the vocabulary"]);
    let long = vec!["1"; 38].join(",");
    assert_refused(&["--model", &model, "--prompt-ids", &long], 1, &["38 tokens", "holds 37"]);
    assert_refused(&["--model", &model, "--prompt-ids", &long, "--score"], 1, &["38 tokens"]);
    assert_refused(&["--model", &model, "--prompt-ids", "3", "--score"], 1, &["at least two tokens"]);
    assert_refused(&["--model", &model, "--prompt", "text"], 1, &["no tokenizer", "--prompt-ids"]);
}

#[test]
fn models_that_are_not_there() {
    assert_refused(&["--model", "./nowhere"], 1, &["./nowhere"]);
    assert_refused(&["--model", "nobody/nothing"], 1, &["nobody/nothing"]);
    let empty = tempfile::tempdir().expect("a temporary directory");
    let empty = empty.path().to_str().expect("text");
    assert_refused(&["--model", empty, "--prompt-ids", "1"], 1, &["config.json"]);
}

/// A copy of a fixture in which one file is changed.
fn damaged(fixture_name: &str, file: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    for entry in fs::read_dir(fixture(fixture_name)).expect("a fixture") {
        let path = entry.expect("a file").path();
        fs::copy(&path, directory.path().join(path.file_name().expect("a name"))).expect("copied");
    }
    let path = directory.path().join(file);
    fs::write(&path, change(fs::read(&path).expect("readable"))).expect("writable");
    directory
}

#[track_caller]
fn assert_damage_is_named(directory: &Path, words: &[&str]) {
    assert_refused(&["--model", directory.to_str().expect("text"), "--prompt-ids", "1,2"], 1, words);
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
    assert_refused(&["--model", tokenizer.path().to_str().expect("text"), "--prompt", "x"], 1, &["tokenizer.json"]);
}
