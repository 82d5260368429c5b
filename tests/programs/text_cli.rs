//! End-to-end tests of all examples that generate text: piped input, texts longer than the context, generation settings
//! from files, and damaged weights.

use crate::common::{Example, Place, damaged, fixture, json_file, text};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

const GPT2: Example = Example("gpt2");
const LLAMA: Example = Example("llama");

/// Asserts that the program ended with status 1 and one error message that has the words.
#[track_caller]
fn assert_failed(output: &Output, words: &[&str]) {
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(output.stdout.is_empty() && message.starts_with("error: "), "{message}");
    assert!(words.iter().all(|word| message.contains(word)), "{message}");
}

#[test]
fn an_empty_pipe_is_not_a_prompt() {
    let model = fixture("tiny_text");
    for arguments in [&[][..], &["--json"], &["--score"], &["--model", &model], &["--model", &model, "--json"]] {
        assert_failed(&GPT2.run_piped(arguments, ""), &["standard input is empty"]);
    }
    assert_failed(&Example("bert").run_piped(&[], ""), &["standard input"]);
    // Without standard input, the example uses a default prompt.
    let made = GPT2.json(&["--json", "--max-new-tokens", "2"]);
    assert!(made["prompt_ids"].as_array().is_some_and(|ids| ids.len() > 3), "{made}");
    let chat = ["--model", "models/tests/fixtures/llama/gguf/f16.gguf", "--chat"];
    assert_failed(&LLAMA.run_piped(&chat, ""), &["standard input is empty"]);
    assert_failed(&LLAMA.run(&chat, ""), &["no message"]);
    LLAMA.assert_fails(&[&chat[..], &["--json"]].concat(), 1, &["no message"]);
    assert_failed(&LLAMA.run_piped(&chat, "\n\n"), &["no message"]);
}

#[test]
fn a_prompt_that_is_too_long_is_not_shown() {
    let model = fixture("tiny_text");
    let long = "The old apple tree ".repeat(100);
    GPT2.assert_refused(&["--model", &model, "--prompt", &long], 1, &["the model's context is 96"]);
    GPT2.assert_refused(&["--model", &model, "--prompt", &long, "--draft", &model], 1, &["context is 96"]);
}

#[test]
fn a_full_context_is_reported() {
    let model = fixture("tiny_a");
    let common = ["--model", &model, "--prompt-ids", "5,17,40", "--ignore-eos", "--temperature", "0"];
    let run = |count: &str| GPT2.run(&[&common[..], &["--max-new-tokens", count]].concat(), "");
    let stderr_of = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr_of(run("50")).contains("context is full"));
    assert!(!stderr_of(run("35")).contains("context is full"));
    let finish = |count: &str| {
        let made = GPT2.json(&[&common[..], &["--max-new-tokens", count, "--json"]].concat());
        (made["finish"].clone(), made["generated_ids"].as_array().map(Vec::len))
    };
    assert_eq!(finish("50"), ("context".into(), Some(35)));
    assert_eq!(finish("35"), ("length".into(), Some(35)));
}

#[test]
fn texts_beyond_the_context_are_scored_in_windows() {
    let reference = json_file("models/tests/fixtures/gpt2/generation.json".into());
    let model = fixture("tiny_a");
    for case in reference["windows"].as_array().expect("cases") {
        let ids: Vec<String> = case["ids"].as_array().expect("tokens").iter().map(Value::to_string).collect();
        let stride = case["stride"].to_string();
        let arguments = ["--model", &model, "--prompt-ids", &ids.join(","), "--score", "--stride", &stride, "--json"];
        let scored = GPT2.json(&arguments);
        let (found, expected) = (scored["loss"].as_f64().expect("a loss"), case["loss"].as_f64().expect("a loss"));
        assert!((found / expected - 1.0).abs() < 1e-4, "{} tokens by {stride}: {scored}", ids.len());
        assert_eq!(scored["windows"], case["windows"]);
    }
    let ids = vec!["1"; 50].join(",");
    let output = GPT2.run(&["--model", &model, "--prompt-ids", &ids, "--score"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("windows"));
    GPT2.assert_refused(&["--model", &model, "--prompt-ids", &ids, "--score", "--stride", "37"], 1, &["the stride"]);
    GPT2.assert_refused(&["--model", &model, "--prompt-ids", &ids, "--score", "--stride", "0"], 2, &["--stride"]);
}

#[test]
fn generation_config_determines_the_options() {
    let reference = json_file("models/tests/fixtures/gpt2/generation.json".into());
    for case in reference["published"].as_array().expect("cases") {
        let model = damaged("tiny_a", "generation_config.json", |_| case["config"].to_string().into_bytes());
        let prompt: Vec<String> = case["prompt"].as_array().expect("tokens").iter().map(Value::to_string).collect();
        let prompt = prompt.join(",");
        let common = ["--model", text(model.path()), "--prompt-ids", &prompt, "--max-new-tokens", "20", "--json"];
        let made = GPT2.json(&common);
        let mut expected = case["ids"].as_array().expect("tokens").clone();
        // transformers includes the token that ended the text.
        if made["finish"] == "stop" {
            expected.pop();
        }
        assert_eq!(made["generated_ids"], Value::from(expected), "{}", case["config"]);
        let options = ["--repetition-penalty", "1", "--temperature", "0", "--ignore-eos"];
        let plain = GPT2.json(&[&common[..], &options].concat());
        assert_eq!(plain["generated_ids"], case["without_penalty"]);
    }
}

/// Replaces one value of a tensor of the file by NaN.
fn with_nan(file: Vec<u8>, tensor: &str) -> Vec<u8> {
    let mut file = file;
    let length = u64::from_le_bytes(file[..8].try_into().expect("eight bytes")) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + length]).expect("a header");
    let begin = header[tensor]["data_offsets"][0].as_u64().expect("an offset") as usize;
    file[8 + length + begin..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    file
}

#[test]
fn damaged_weights_are_named() {
    let tensor = "transformer.h.1.mlp.c_fc.weight";
    let model = damaged("tiny_text", "model.safetensors", |file| with_nan(file, tensor));
    let model = text(model.path());
    for options in [&["--json"][..], &["--json", "--temperature", "0"], &["--score"], &["--json", "--samples", "2"]] {
        let arguments = [&["--model", model, "--prompt", "The old apple tree"], options].concat();
        GPT2.assert_refused(&arguments, 1, &["not finite", "h.1.mlp.c_fc.weight"]);
    }
    let place = Place::new();
    let book = place.book();
    let evaluate = ["--evaluate", "--model", model, "--data", &book, "--json"];
    Example("train_gpt2").assert_fails(&evaluate, 1, &["not finite", "h.1.mlp.c_fc.weight"]);
}

#[test]
fn errors_are_short_and_without_escape_sequences() {
    let long = format!("./a\u{1b}[31m{}", "x".repeat(50_000));
    let output = GPT2.run(&["--model", &long], "");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.len() < 1500 && !message.contains('\u{1b}'), "{message}");
    let made = GPT2.run(&["--model", &fixture("tiny_text"), "--prompt", "a\u{9b}31m\u{7f}", "--json"], "");
    let object = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(serde_json::from_str::<Value>(&object).is_ok());
    assert!(object.trim_end().chars().all(|letter| !letter.is_control()), "{object:?}");
}

/// Uses a pseudo-terminal of `script`, from util-linux.
#[test]
fn removes_control_characters_for_a_terminal() {
    let program = GPT2.program();
    let command =
        format!("'{}' --model {} --prompt \"$TEXT\" --max-new-tokens 1", program.display(), fixture("tiny_text"));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).env("TEXT", "red\u{1b}[31m\u{7}tree");
    let Ok(output) = script.stdin(std::process::Stdio::null()).output() else {
        println!("skipped: there is no program `script` here, which makes a terminal");
        return;
    };
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.contains("red[31mtree"), "{shown:?}");
    let commands = shown.chars().filter(|letter| letter.is_control() && !"\r\n\t".contains(*letter));
    assert_eq!(commands.count(), 0, "{shown:?}");
    // Output that is not a terminal keeps control characters.
    let piped = GPT2.run(&["--model", &fixture("tiny_text"), "--prompt", "red\u{1b}[31m", "--max-new-tokens", "1"], "");
    assert!(String::from_utf8_lossy(&piped.stdout).starts_with("red\u{1b}[31m"));
}

/// Writes a tiny LLaMA with a tokenizer of letters, whose texts end with `</s>`.
fn llama_of_letters(directory: &Path) {
    for name in ["config.json", "model.safetensors"] {
        fs::copy(Path::new("models/tests/fixtures/llama/gqa").join(name), directory.join(name)).expect("copied");
    }
    let special = |id: usize, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    let tokens = ["<unk>", "<s>", "</s>"].into_iter().map(str::to_owned);
    let letters = ('a'..='z').chain(['▁', '.']).map(String::from);
    let vocab: serde_json::Map<String, Value> = tokens.chain(letters).zip((0..).map(|id: u32| id.into())).collect();
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": { "type": "Replace", "pattern": { "String": " " }, "content": "▁" },
        "pre_tokenizer": null, "post_processor": null,
        "decoder": { "type": "Sequence", "decoders": [
            { "type": "Replace", "pattern": { "String": "▁" }, "content": " " }, { "type": "Fuse" },
        ]},
        "model": { "type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "vocab": vocab, "merges": [] },
    });
    let write = |name: &str, value: Value| fs::write(directory.join(name), value.to_string()).expect("written");
    write("tokenizer.json", tokenizer);
    write(
        "tokenizer_config.json",
        json!({
            "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
            "chat_template": "{{ messages[0]['content'] }}</s>",
        }),
    );
    write("generation_config.json", json!({ "do_sample": true, "temperature": 0.6, "eos_token_id": [2, 1] }));
}

#[test]
fn a_fine_tuned_model_keeps_its_tokenizer_and_learns_its_own_end() {
    let place = Place::new();
    let source = place.path("source");
    fs::create_dir(&source).expect("made");
    llama_of_letters(&source);
    let books = place.path("books");
    fs::create_dir(&books).expect("made");
    let lines = ["the river runs past the trees.", "a cat sleeps in the old tree."];
    for (i, line) in lines.iter().enumerate() {
        fs::write(books.join(format!("{i}.txt")), line).expect("written");
    }
    let train = Example("train_llama");
    // The letters of each document and an end token; the first token is not predicted.
    let data = ["--model", text(&source), "--data", text(&books), "--context", "16", "--json"];
    let evaluated = train.json(&[&data[..], &["--evaluate"]].concat());
    assert_eq!(evaluated["tokens"], lines[0].len() + lines[1].len() + 2 - 1);
    let run = place.named("run");
    let options = ["--output", &run, "--steps", "1", "--batch-size", "1", "--val-fraction", "0"];
    train.json(&[&data[..], &options].concat());
    for name in ["tokenizer.json", "tokenizer_config.json", "generation_config.json"] {
        let saved = fs::read(place.path("run/model").join(name)).expect("kept");
        assert!(saved == fs::read(source.join(name)).expect("a file"), "{name}");
    }
    assert!(!place.path("run/model/special_tokens_map.json").exists(), "what was not there is not made up");
    // The saved model has the end token of the source.
    let made = LLAMA.json(&["--model", &place.named("run/model"), "--prompt", "the", "--json"]);
    assert!(["stop", "length", "context"].contains(&made["finish"].as_str().expect("a reason")), "{made}");
}
