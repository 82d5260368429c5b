//! End-to-end tests of the examples `train_gpt2` and `train_llama`: the files of a run, resumption, and error messages.

use grove::weights::TensorFiles;
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
};
use tempfile::TempDir;

use crate::common::{Example, TINY, damaged, fixture, json_file, text};
#[cfg(unix)]
use crate::common::{signal, wait_until};

const TRAIN: Example = Example("train_gpt2");

/// A temporary directory with a text, for a run.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a temporary directory"));
        place.write("book.txt", sentences(300).as_bytes());
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.path(name), content).expect("written");
        text(&self.path(name)).to_owned()
    }

    fn exists(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    /// Returns the arguments of a run on the text, with more options.
    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        self.with_model(&[&TINY[..], &["--log-every", "1"], more].concat())
    }

    /// Returns the arguments of a run without model sizes.
    fn with_model<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        // Leaked to get a static lifetime; a test leaks only a few.
        let leaked = |name: &str| &*Box::leak(text(&self.path(name)).to_owned().into_boxed_str());
        [&["--data", leaked("book.txt"), "--output", leaked("run"), "--seed", "3"], more].concat()
    }

    fn records(&self) -> Vec<Value> {
        let lines = fs::read_to_string(self.path("run/metrics.jsonl")).expect("the log");
        lines.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }

    fn training_losses(&self) -> Vec<f64> {
        self.records().iter().filter_map(|record| record["train/loss"].as_f64()).collect()
    }

    /// Returns the sorted names of the checkpoints.
    fn checkpoints(&self) -> Vec<String> {
        let listing = fs::read_dir(self.path("run/checkpoints")).expect("a directory");
        let mut names: Vec<String> =
            listing.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    /// Returns all files of the run and their bytes, which must not change when a command is rejected.
    fn contents(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let (mut directories, mut files) = (vec![self.path("run")], Vec::new());
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                match path.is_dir() {
                    true => directories.push(path),
                    false => files.push((path.clone(), fs::read(path).expect("readable"))),
                }
            }
        }
        files.sort();
        files
    }
}

/// Returns a text with a learnable pattern.
fn sentences(count: usize) -> String {
    let (who, what) = (["The cat", "A dog", "My aunt", "The cook"], ["sleeps", "sings", "eats fish", "runs away"]);
    let sentence = |i: usize| format!("{} {} by the river {}. ", who[i * i % 4], what[(i / 3 + i) % 4], i % 7);
    (0..count).map(sentence).collect()
}

#[test]
fn a_run_leaves_model_checkpoints_and_logs() {
    let place = Place::new();
    let made = TRAIN.json(&place.arguments(&["--steps", "10", "--evaluate-every", "5", "--json"]));
    assert_eq!((&made["steps"], &made["ended"]), (&10.into(), &"finished".into()));
    assert_eq!(made["best_step"], 10, "the loss falls, so the last evaluation is the best");
    assert_eq!(made["model"], text(&place.path("run/model")));
    let loss = made["held_out_loss"].as_f64().expect("a number");
    assert!(loss < 280f64.ln(), "better than guessing: {loss}");
    assert!((made["perplexity"].as_f64().expect("a number") / loss.exp() - 1.0).abs() < 1e-9);

    for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        assert!(place.exists(&format!("run/model/{file}")), "no {file}");
    }
    assert_eq!(place.checkpoints(), ["step-0000000010"]);
    let curve = fs::read_to_string(place.path("run/loss.svg")).expect("the curve");
    assert!(curve.starts_with("<svg") && curve.contains("Loss of run by step"), "{}", &curve[..400]);
    let events = fs::read_dir(place.path("run/tensorboard")).expect("a directory").next().expect("a file");
    let events = events.expect("an entry");
    assert!(events.file_name().to_string_lossy().starts_with("events.out.tfevents."), "TensorBoard finds it");
    let losses = place.training_losses();
    assert_eq!(losses.len(), 10, "one record a step");
    assert!(losses[9] < losses[0], "it learns: {losses:?}");
    let evaluated: Vec<Value> = place
        .records()
        .into_iter()
        .filter(|record| record["eval/loss"].is_f64())
        .map(|record| record["step"].clone())
        .collect();
    assert_eq!(evaluated, [5, 10]);

    let config: Value =
        serde_json::from_slice(&fs::read(place.path("run/model/config.json")).expect("a file")).expect("JSON");
    let sizes =
        ["n_layer", "n_head", "n_embd", "n_positions", "vocab_size", "eos_token_id"].map(|name| config[name].as_u64());
    assert_eq!(sizes, [1, 2, 16, 16, 280, 0].map(Some), "as asked for");

    // The reported loss equals the loss of the saved model.
    let held_out = place.write("tokens.txt", b"The cat sings by the river 3. A dog runs away by the river 4.");
    let model = place.path("run/model");
    let evaluated = TRAIN.json(&["--evaluate", "--model", text(&model), "--data", &held_out, "--json"]);
    assert!(evaluated["loss"].as_f64() < Some(280f64.ln()), "{evaluated}");

    // The example `gpt2` loads the model.
    let made =
        Example("gpt2").json(&["--model", text(&model), "--prompt", "The cat", "--max-new-tokens", "5", "--json"]);
    assert!(made["text"].is_string(), "{made}");
}

#[test]
fn adapters_are_trained_and_saved_beside_the_merged_model() {
    let place = Place::new();
    TRAIN.json(&place.arguments(&["--steps", "5", "--json"]));
    let named = |name: &str| text(&place.path(name)).to_owned();
    let (base, book, run) = (named("run/model"), named("book.txt"), named("lora"));
    let options = ["--model", &base, "--data", &book, "--output", &run, "--batch-size", "4", "--context", "16"];
    let lora = ["--lora-rank", "2", "--learning-rate", "5e-2", "--steps", "6"];
    let output = TRAIN.run(&[&options[..], &lora].concat(), "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    // 2 x (16 + 48) parameters of the projection to queries, keys and values.
    assert!(output.status.success() && stderr.contains("128 of them trained"), "{stderr}");

    let config = json_file(place.path("lora/adapter/adapter_config.json"));
    assert_eq!((&config["r"], &config["lora_alpha"]), (&2.into(), &4.0.into()), "{config}");
    let tokens = |more: &[&str]| {
        let greedy = ["--prompt", "The cat", "--temperature", "0", "--max-new-tokens", "12", "--json"];
        Example("gpt2").json(&[more, &greedy].concat())["generated_ids"].clone()
    };
    let merged = tokens(&["--model", &named("lora/model")]);
    assert_eq!(tokens(&["--model", &base, "--adapter", &named("lora/adapter")]), merged);
    assert_eq!(tokens(&["--model", &named("lora/adapter")]), merged, "an adapter finds its base model");
    let tensors = |file: &str| TensorFiles::open(place.path(file)).expect("weights");
    let [before, after] = ["run/model", "lora/model"].map(tensors);
    for name in before.names() {
        let same = before.tensor(name).expect("a tensor") == after.tensor(name).expect("a tensor");
        assert_eq!(same, !name.ends_with("attn.c_attn.weight"), "{name}");
    }

    let frozen = [&options[..4], &["--steps", "2", "--freeze", "wte.**,wpe.**", "--batch-size", "4"]].concat();
    let output = TRAIN.run(&frozen, "");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("of them trained") && !stderr.contains("error"), "{stderr}");
    TRAIN.assert_refused(&["--lora-rank", "2"], 2, &["--model"]);
    TRAIN.assert_refused(&[&options[..4], &["--lora-rank", "0"]].concat(), 2, &["--lora-rank is 0"]);
    let huge = ["--lora-rank", "1000000000"];
    TRAIN.assert_refused(&[&options[..4], &huge].concat(), 2, &["--lora-rank is 1000000000", "at most rank 16"]);
    let targets = ["--lora-rank", "2", "--lora-targets", "h.*.nowhere"];
    TRAIN.assert_refused(&[&options[..4], &targets].concat(), 2, &["--lora-targets", "h.*.nowhere"]);
}

#[test]
fn the_optimizer_has_a_name_or_a_file() {
    let place = Place::new();
    let book = text(&place.path("book.txt")).to_owned();
    let base = [&["--data", &book, "--steps", "3", "--json"][..], &TINY].concat();
    let loss = |more: &[&str]| TRAIN.json(&[&base[..], more].concat())["held_out_loss"].as_f64().expect("a loss");
    let plain = loss(&["--schedule", "constant", "--warmup", "0"]);
    for name in ["lion", "muon", "adafactor", "sgd"] {
        let other = loss(&["--optimizer", name, "--schedule", "constant", "--warmup", "0"]);
        assert!(other.is_finite() && (other - plain).abs() > 1e-6, "{name}: {other}");
    }
    // The default, written out.
    let file = place.write(
        "adamw.json",
        br#"{"name": "adamw", "learning_rate": 1e-3, "b2": 0.99, "weight_decay": 0.1, "weight_decay_mask": "matrices", "clip": 1}"#,
    );
    let written_out = loss(&["--optimizer", &file]);
    assert!((written_out - plain).abs() < 1e-5, "{written_out} is not {plain}");

    let refused =
        |more: &[&str], status, words: &[&str]| TRAIN.assert_fails(&[&base[..], more].concat(), status, words);
    refused(&["--optimizer", &file, "--weight-decay", "0.1"], 2, &["--weight-decay", "adamw.json contains"]);
    refused(&["--optimizer", "sgd", "--beta2", "0.9"], 2, &["unknown field `b2`", "`momentum`"]);
    refused(&["--optimizer", "adamm"], 2, &["unknown variant `adamm`", "`lion`"]);
    refused(&["--optimizer", "missing.json"], 1, &["missing.json"]);
    let broken = place.write("broken.json", br#"{"name": "adamw", "learning_rate": 1e-3, "momentum": 0.9}"#);
    refused(&["--optimizer", &broken], 1, &["broken.json", "unknown field `momentum`"]);
    for field in ["frozen", "weight_decay_mask"] {
        let text = format!(r#"{{"name": "adamw", "learning_rate": 1e-3, "{field}": ["h.*.nowhere"]}}"#);
        let file = place.write("pattern.json", text.as_bytes());
        refused(
            &["--optimizer", &file],
            1,
            &["pattern.json: no path of the model matches `h.*.nowhere`", "wte.weight"],
        );
    }
}

#[test]
fn without_output_nothing_is_kept() {
    let place = Place::new();
    let data = place.path("book.txt");
    let output = TRAIN.run(&[&["--data", text(&data), "--steps", "3"], &TINY[..]].concat(), "");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{err}");
    for words in ["not saved", "--output", "perplexity", "It writes:\nThe"] {
        assert!(out.contains(words), "no '{words}' in {out}");
    }
    assert!(err.contains("parameters") && err.contains("3 steps of 64 tokens"), "{err}");
    assert_eq!(fs::read_dir(place.0.path()).expect("a directory").count(), 1, "only the text");
}

#[test]
fn a_resumed_run_matches_an_uninterrupted_run() {
    // With a constant learning rate, the number of steps does not influence earlier steps.
    let constant = ["--final-learning-rate", "1", "--warmup", "0", "--checkpoint-every", "4", "--json"];
    let (one, two) = (Place::new(), Place::new());
    TRAIN.json(&one.arguments(&[&["--steps", "12"], &constant[..]].concat()));
    let first = TRAIN.json(&two.arguments(&[&["--steps", "5"], &constant[..]].concat()));
    assert_eq!(first["steps"], 5);
    assert_eq!(two.checkpoints(), ["step-0000000004", "step-0000000005"]);
    let tokenizer = fs::read(two.path("run/model/tokenizer.json")).expect("a tokenizer");
    let second = TRAIN.json(&two.arguments(&[&["--steps", "12", "--resume"], &constant[..]].concat()));
    assert_eq!(second["steps"], 12);
    assert_eq!(one.training_losses(), two.training_losses(), "the same losses, bit for bit");
    let weights =
        |place: &Place| fs::read(place.path("run/checkpoints/step-0000000012/state.safetensors")).expect("a file");
    assert!(weights(&one) == weights(&two), "the same weights, bit for bit");

    // Changed data makes the resumption an error.
    let before = weights(&two);
    two.write("book.txt", sentences(300).replace("river", "lake").as_bytes());
    let more = |resume| [&["--steps", "12", "--batch-size", "4", "--json", resume], &constant[..4]].concat();
    let words = ["other settings: ", "data was ", "held-out was ", "--resume-anyway"];
    TRAIN.assert_fails(&two.with_model(&more("--resume")), 1, &words);
    // Resuming a finished run does nothing; model sizes come from the run.
    let third = TRAIN.json(&two.with_model(&more("--resume-anyway")));
    assert_eq!((&third["steps"], &third["ended"]), (&12.into(), &"finished".into()));
    assert!(weights(&two) == before, "the weights stay");
    let after = fs::read(two.path("run/model/tokenizer.json")).expect("a tokenizer");
    assert!(tokenizer == after, "the tokenizer stays, whatever the text is now");
}

#[test]
fn a_run_is_not_replaced() {
    let place = Place::new();
    TRAIN.json(&place.arguments(&["--steps", "2", "--json"]));
    let before = place.contents();
    let words = ["already has a run at step 2", "resume it, or give another directory"];
    TRAIN.assert_refused(&place.arguments(&["--steps", "4"]), 1, &words);
    assert!(place.contents() == before, "everything is as it was");

    let other = |more: &[&str], status, words: &[&str]| {
        TRAIN.assert_refused(
            &place.with_model(&[&["--steps", "4", "--batch-size", "4", "--resume"], more].concat()),
            status,
            words,
        );
        assert!(place.contents() == before, "{more:?}: everything is as it was");
    };
    other(&["--n-embd", "32"], 2, &["--n-embd is 32", "has 16"]);
    other(&["--n-head", "4"], 2, &["--n-head is 4", "has 2"]);
    other(&["--n-layer", "3"], 2, &["--n-layer is 3", "has 1"]);
    other(&["--context", "17"], 2, &["--context is 17", "16 positions"]);

    // Without the run's config.json, the checkpoint determines the sizes.
    fs::remove_file(place.path("run/model/config.json")).expect("removed");
    let sizes = ["--n-layer", "1", "--n-head", "2", "--n-embd", "32", "--context", "16"];
    let resumed = |resume| [&["--steps", "4", "--batch-size", "4", resume], &sizes[..]].concat();
    TRAIN.assert_fails(&place.with_model(&resumed("--resume")), 1, &["model.n_embd was 16 and is 32"]);
    let words = ["another model", "ln_1.weight", "[32]", "[16]"];
    TRAIN.assert_fails(&place.with_model(&resumed("--resume-anyway")), 1, &words);
}

#[test]
fn checkpoints_that_cannot_be_resumed() {
    let place = Place::new();
    TRAIN.json(&place.arguments(&["--steps", "4", "--checkpoint-every", "2", "--json"]));
    let resumed = ["--steps", "6", "--resume"];
    let ema = [&resumed[..], &["--ema", "0.9"]].concat();
    TRAIN.assert_fails(&place.arguments(&ema), 1, &["other settings", "ema was none and is 0.9"]);
    let words = ["another model or optimizer", "ema"];
    TRAIN.assert_fails(&place.arguments(&[&ema[..], &["--resume-anyway"]].concat()), 1, &words);

    let newest = place.path("run/checkpoints/step-0000000004");
    let manifest = newest.join("checkpoint.json");
    let written = fs::read_to_string(&manifest).expect("the manifest");
    assert!(written.contains("\"format\": "), "{written}");
    let number =
        written.split("\"format\": ").nth(1).and_then(|rest| rest.split([',', '\n', '}']).next()).expect("a number");
    fs::write(&manifest, written.replace(&format!("\"format\": {number}"), "\"format\": 99")).expect("written");
    TRAIN.assert_fails(&place.arguments(&resumed), 1, &["step-0000000004", "format 99", "update grove"]);
    fs::write(&manifest, &written).expect("written");

    // A damaged checkpoint is skipped, with a message.
    let state = newest.join("state.safetensors");
    let bytes = fs::read(&state).expect("the state");
    fs::write(&state, &bytes[..bytes.len() / 2]).expect("written");
    let output = TRAIN.run(&place.arguments(&resumed), "");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("step-0000000004 is damaged") && stderr.contains("going on after step 2"), "{stderr}");
}

#[test]
fn a_nan_loss_ends_the_run_and_keeps_the_last_good_checkpoint() {
    let place = Place::new();
    TRAIN.json(&place.arguments(&["--steps", "2", "--json"]));
    let model = fs::read(place.path("run/model/model.safetensors")).expect("a model");
    let diverging = [
        "--steps",
        "400",
        "--resume-anyway",
        "--learning-rate",
        "1e30",
        "--clip",
        "0",
        "--warmup",
        "0",
        "--checkpoint-every",
        "300",
    ];
    let words = ["is NaN at step", "the last good checkpoint is", "step-0000000002", "a lower learning rate"];
    TRAIN.assert_fails(&place.arguments(&diverging), 1, &words);
    assert_eq!(place.checkpoints(), ["step-0000000002"], "the last good one stays");
    assert!(model == fs::read(place.path("run/model/model.safetensors")).expect("a model"), "the model stays");
    let made = TRAIN.json(&place.arguments(&["--steps", "4", "--resume", "--json"]));
    assert_eq!(made["steps"], 4, "and the run goes on from there");
}

#[test]
fn a_published_model_is_tuned() {
    let place = Place::new();
    let model = fixture("tiny_text");
    let evaluate = |model: &str| {
        let data = place.path("book.txt");
        TRAIN.json(&["--evaluate", "--model", model, "--data", text(&data), "--json"])
    };
    let before = evaluate(&model);
    let tuned = [
        "--model",
        &model,
        "--steps",
        "12",
        "--context",
        "32",
        "--batch-size",
        "4",
        "--learning-rate",
        "3e-3",
        "--json",
    ];
    TRAIN.json(&place.with_model(&tuned));
    let after = evaluate(text(&place.path("run/model")));
    assert_eq!(before["tokens"], after["tokens"], "the same tokenizer");
    let loss = |evaluated: &Value| evaluated["loss"].as_f64().expect("a number");
    assert!(loss(&after) < loss(&before), "{before} {after}");
    assert!((after["perplexity"].as_f64().expect("a number") / loss(&after).exp() - 1.0).abs() < 1e-9);

    // A resumed fine-tuning run need not name its model again.
    let more =
        ["--steps", "14", "--context", "32", "--batch-size", "4", "--learning-rate", "3e-3", "--resume", "--json"];
    assert_eq!(TRAIN.json(&place.with_model(&more))["steps"], 14);
}

/// Updates are too small for the 16 bits of a file: the trained weights have 32. A quantized model is refused.
#[test]
fn trained_weights_have_32_bits_whatever_the_file_has() {
    let train = Example("train_llama");
    let place = Place::new();
    let gguf = |name: &str| format!("models/tests/fixtures/llama/gguf/{name}.gguf");
    let tokenizer = ["--tokenizer", "models/assets/llama-austen"];
    let run = |model: &str, more: &[&str]| {
        let words =
            [&["--model", model], more, &["--steps", "2", "--context", "16", "--learning-rate", "1e-6"]].concat();
        place.with_model(&words).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let words = run(&gguf("q8_0"), &tokenizer);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    train.assert_refused(&words, 1, &["q8_0.gguf", "its weights are quantized", "grove convert"]);
    let words = run(&gguf("f16"), &[]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    train.json(&[&words[..], &["--json"]].concat());
    let bytes = fs::read(place.path("run/model/model.safetensors")).expect("a model");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let fine = bytes[8 + header..].chunks_exact(4).filter(|number| number[0] != 0).count();
    assert!(fine * 8 > bytes.len() / 4, "{fine} of {} numbers have more bits than f16", bytes.len() / 4);
}

#[test]
fn a_llama_is_trained_resumed_and_writes() {
    let train = Example("train_llama");
    let place = Place::new();
    let run = |more: &'static str| {
        let words: Vec<&str> = more.split(' ').chain("--batch-size 4 --learning-rate 1e-2 --json".split(' ')).collect();
        place.with_model(&words)
    };
    let first =
        run("--steps 30 --layers 1 --heads 4 --kv-heads 2 --hidden-size 32 --intermediate-size 48 --context 16 \
                     --vocab-size 280");
    assert_eq!(train.json(&first)["steps"], 30);
    // Query and output projections of 4 heads of size 8, keys and values of 2 heads, three feed-forward matrices,
    // norms, embeddings.
    let model = place.path("run/model");
    let summary = Example("llama").json(&["--model", text(&model), "--summary", "--json"]);
    assert_eq!(summary["parameters"], 32 * (2 * 32 + 2 * 16 + 3 * 48) + 3 * 32 + 280 * 32);
    let config = fs::read_to_string(place.path("run/model/config.json")).expect("written");
    assert!(config.contains(r#""num_key_value_heads": 2"#) && config.contains("LlamaForCausalLM"), "{config}");

    // A size that differs from the checkpoint is an error; other options are accepted.
    let other = run("--steps 40 --kv-heads 4 --context 16 --resume");
    train.assert_refused(&other, 2, &["--kv-heads", "4", "2"]);
    assert_eq!(train.json(&run("--steps 40 --context 16 --resume"))["steps"], 40);

    let evaluated =
        train.json(&["--evaluate", "--model", text(&model), "--data", text(&place.path("book.txt")), "--json"]);
    assert!(evaluated["loss"].as_f64().is_some_and(|loss| loss < 4.5), "better than chance, 5.6: {evaluated}");
    let options = ["--model", text(&model), "--prompt", "The", "--max-new-tokens", "4", "--ignore-eos", "--json"];
    assert_eq!(Example("llama").json(&options)["generated_ids"].as_array().map(Vec::len), Some(4));
}

#[test]
fn evaluation_matches_transformers() {
    // Tokens, because the example would add an end token to a text.
    let reference: Vec<Value> =
        serde_json::from_slice(&fs::read(fixture("tiny_text/reference.json")).expect("a fixture")).expect("JSON");
    let (place, model) = (Place::new(), fixture("tiny_text"));
    let mut tokens = String::new();
    for case in &reference {
        let ids: Vec<u16> = serde_json::from_value(case["prompt_ids"].clone()).expect("numbers");
        tokens = place.write("prompt.tokens", &token_file(&ids));
        let made = TRAIN.json(&["--evaluate", "--model", &model, "--data", &tokens, "--json"]);
        assert_eq!(made["tokens"], ids.len() - 1, "all but the first");
        let apart = made["loss"].as_f64().expect("a number") / case["prompt_loss"].as_f64().expect("a number") - 1.0;
        assert!(apart.abs() < 1e-4, "{made}, and transformers has {}", case["prompt_loss"]);
    }
    let output = TRAIN.run(&["--evaluate", "--model", &model, "--data", &tokens], "");
    let line = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(line.contains("nats a token") && line.contains("perplexity") && line.lines().count() == 1, "{line}");
}

/// Returns the bytes that `TokenStream::write` writes.
fn token_file(ids: &[u16]) -> Vec<u8> {
    let tokens: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    [b"grovetok".as_slice(), &1u32.to_le_bytes(), &2u32.to_le_bytes(), &tokens, &(ids.len() as u64).to_le_bytes()]
        .concat()
}

#[test]
fn token_files_need_no_tokenizer() {
    let place = Place::new();
    let ids: Vec<u16> = (0..2000u32).map(|i| (i * i % 97) as u16).collect();
    let tokens = place.write("numbers.tokens", &token_file(&ids));
    let run = place.path("run");
    let sizes =
        ["--n-layer", "1", "--n-head", "1", "--n-embd", "8", "--context", "8", "--batch-size", "2", "--steps", "2"];
    let arguments = [&["--data", &tokens, "--output", text(&run), "--json"], &sizes[..]].concat();
    let too_small = [&arguments[..], &["--vocab-size", "96"]].concat();
    TRAIN.assert_refused(&too_small, 1, &["token 96", "96 tokens", "--vocab-size"]);
    assert!(!run.exists(), "refused before anything was written");
    TRAIN.json(&[&arguments[..], &["--vocab-size", "97"]].concat());
    assert!(place.exists("run/model/model.safetensors") && !place.exists("run/model/tokenizer.json"));

    let truncated = place.write("cut.tokens", &token_file(&ids)[..1001]);
    TRAIN.assert_refused(&["--data", &truncated], 1, &["cut.tokens", "truncated or damaged"]);
    let page = place.write("page.tokens", b"<!DOCTYPE html><html></html>");
    TRAIN.assert_refused(&["--data", &page], 1, &["page.tokens", "not a complete token file"]);
    TRAIN.assert_refused(&["--data", &tokens, &truncated], 2, &["token file", "the only path"]);
}

#[test]
fn wrong_usage_has_status_two() {
    let place = Place::new();
    let data = place.path("book.txt");
    let refused = |more: &[&str], words: &[&str]| {
        TRAIN.assert_refused(&[&["--data", text(&data), "--steps", "2"], more].concat(), 2, words);
    };
    for (option, value) in [
        ("--learning-rate", "0"),
        ("--learning-rate", "-0.001"),
        ("--learning-rate", "NaN"),
        ("--learning-rate", "inf"),
        ("--beta2", "1"),
        ("--beta2", "NaN"),
        ("--clip", "-1"),
        ("--clip", "NaN"),
        ("--weight-decay", "-0.1"),
        ("--dropout", "1"),
        ("--ema", "1.5"),
        ("--val-fraction", "1"),
        ("--batch-size", "0"),
        ("--accumulate", "0"),
        ("--context", "0"),
        ("--evaluate-every", "0"),
        ("--patience", "0"),
        ("--batch-size", "many"),
        ("--batch-size", "-4"),
        ("--n-layer", "0"),
        ("--warmup", "2"),
        ("--backend", "cude"),
    ] {
        refused(&[option, value], &[option.trim_start_matches('-').split('-').next().expect("a word"), value]);
    }
    refused(&["--checkpoint-every", "0", "--output", "nowhere"], &["checkpoint", "0"]);
    refused(&["--checkpoint-every", "5"], &["--output"]);
    refused(&["--keep-checkpoints", "0", "--output", "nowhere"], &["--keep-checkpoints is 0", "at least 1"]);
    refused(&["--keep", "3"], &["--keep-checkpoints 3", "number of checkpoints"]);
    refused(&["--backend", "candle", "--dtype", "bf16"], &["candle", "bf16"]);
    refused(&["--vocab-size", "10"], &["--vocab-size is 10", "at least 257"]);
    refused(&["--config", "gpt5"], &["gpt5", "gpt2, gpt2-medium, gpt2-large, gpt2-xl"]);
    refused(&["--n-embd", "30", "--n-head", "4"], &["n_embd, 30", "not divisible", "n_head, 4"]);
    refused(&["--n-embd", "18446744073709551615", "--n-head", "1"], &["n_embd", "2^28"]);
    refused(&["--epochs", "2"], &["--steps", "--epochs"]);
    refused(&["--resume"], &["--output"]);
    refused(&["--patience", "3", "--val-fraction", "0"], &["--patience", "--val-fraction"]);
    refused(&["--model", &fixture("tiny_text"), "--n-embd", "32"], &["--model", "--n-embd"]);
    refused(&["--model", &fixture("tiny_text"), "--context", "97"], &["--context is 97", "96 positions"]);
    TRAIN.assert_refused(&["--evaluate"], 2, &["--model"]);
    TRAIN.assert_refused(&["--evaluate", "--model", "x", "--output", "y"], 2, &["--evaluate", "--output"]);
    TRAIN.assert_refused(&["--steps", "0"], 2, &["--steps is 0"]);
    TRAIN.assert_refused(&["--epochs", "NaN"], 2, &["--epochs is NaN"]);
    TRAIN.assert_refused(&["--epochs", "-1"], 2, &["--epochs is -1"]);
}

#[test]
fn texts_that_cannot_be_trained_on() {
    let place = Place::new();
    let run = place.path("run");
    let refused = |data: &str, words: &[&str]| {
        TRAIN.assert_refused(&[&["--data", data, "--output", text(&run)], &TINY[..]].concat(), 1, words);
        assert!(!run.exists(), "refused before anything was written");
    };
    refused("./nowhere.txt", &["./nowhere.txt"]);
    refused(&place.write("empty.txt", b""), &["empty.txt", "is empty"]);
    refused(&place.write("latin.txt", b"Gr\xfc\xdfe"), &["latin.txt", "byte 2", "not UTF-8", "iconv"]);
    refused(&place.write("image.txt", b"\x89PNG\r\n\x1a\n\0\0"), &["image.txt", "binary file"]);
    refused(&place.write("short.txt", b"Too short."), &["context of 16", "longer text or a shorter context"]);
    fs::create_dir(place.path("images")).expect("a directory");
    place.write("images/tree.jpg", b"a tree");
    refused(text(&place.path("images")), &["images", "no .txt, .jsonl or .parquet files"]);
    let book = place.path("book.txt");
    let all = ["--data", text(&book), "--output", text(&run)];
    let large = [&TINY[..10], &["--batch-size", "100000"]].concat();
    TRAIN.assert_refused(&[&all, &large[..]].concat(), 1, &["batch of 100000 is larger than the data", "at most"]);
    let empty = place.path("empty.txt");
    TRAIN.assert_refused(&[&all, &TINY[..], &["--held-out", text(&empty)]].concat(), 1, &["empty.txt"]);
    let part = ["--val-fraction", "1e-9"];
    TRAIN.assert_refused(&[&all, &TINY[..], &part].concat(), 1, &["held-out text has 0 tokens", "at least 2"]);
    assert!(!run.exists(), "refused before anything was written");

    let file = place.write("file", b"precious");
    TRAIN.assert_refused(&[&["--data", text(&book), "--output", &file], &TINY[..]].concat(), 1, &["is a file", &file]);
    assert_eq!(fs::read(&file).expect("a file"), b"precious");
}

#[test]
fn models_that_cannot_be_tuned() {
    let place = Place::new();
    let refused = |model: &str, words: &[&str]| {
        TRAIN.assert_refused(&place.with_model(&["--model", model, "--steps", "2"]), 1, words);
        assert!(!place.exists("run"), "refused before anything was written");
    };
    refused("./nowhere", &["./nowhere"]);
    refused("nobody/nothing", &["nobody/nothing", "offline"]);
    refused(&fixture("tiny_a"), &["no tokenizer", "--tokenizer"]);
    let truncated = damaged("tiny_text", "model.safetensors", |bytes| bytes[..bytes.len() / 2].to_vec());
    refused(text(truncated.path()), &["model.safetensors"]);
    let tokenizer = damaged("tiny_text", "tokenizer.json", |_| b"{}".to_vec());
    refused(text(tokenizer.path()), &["tokenizer.json"]);

    // A model exists in the output directory.
    fs::create_dir_all(place.path("run/model")).expect("a directory");
    place.write("run/model/model.safetensors", b"precious");
    for more in [&[][..], &["--resume"]] {
        TRAIN.assert_refused(&place.arguments(&[&["--steps", "2"], more].concat()), 1, &["already has a model"]);
    }
    assert_eq!(fs::read(place.path("run/model/model.safetensors")).expect("a file"), b"precious");
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_can_be_resumed() {
    let place = Place::new();
    let child = TRAIN.start(&place.arguments(&["--steps", "1000000", "--json"]));
    let log = place.path("run/metrics.jsonl");
    let lines = |path: &Path| fs::read_to_string(path).map_or(0, |text| text.lines().count());
    wait_until("two steps", || lines(&log) >= 2);
    signal(&child, "-INT");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let made: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!((&made["ended"], &made["model"]), (&"interrupted".into(), &Value::Null));
    let step = made["steps"].as_u64().expect("a number");
    assert_eq!(place.checkpoints().last(), Some(&format!("step-{step:010}")), "it ended with a checkpoint");
    assert!(!place.exists("run/model/model.safetensors"), "what is not finished is not a model");

    let steps = (step + 2).to_string();
    let made = TRAIN.json(&place.arguments(&["--steps", &steps, "--resume", "--json"]));
    assert_eq!((&made["steps"], &made["ended"]), (&(step + 2).into(), &"finished".into()));
    assert_eq!(lines(&log), place.records().len());
    assert_eq!(place.training_losses().len() as u64, step + 2, "no record is lost and none is twice");
}

/// A failed allocation would abort the program without a message.
#[test]
fn sizes_that_no_machine_holds_are_refused() {
    let place = Place::new();
    let data = place.path("book.txt");
    let refused = |program: &'static str, more: &[&str]| {
        let arguments = [more, &["--data", text(&data), "--steps", "2"]].concat();
        Example(program).assert_refused(&arguments, 1, &["of memory", "choose smaller sizes"]);
    };
    refused("train_gpt2", &["--n-embd", "100000", "--n-layer", "1000", "--n-head", "1"]);
    refused("train_gpt2", &["--n-embd", "67108864", "--n-layer", "10000", "--n-head", "1"]);
    let llama = ["--hidden-size", "268435456", "--intermediate-size", "268435456", "--layers", "10000", "--heads", "4"];
    refused("train_llama", &[&llama[..], &["--kv-heads", "4"]].concat());
    refused("train_rnn", &["lm", "--hidden", "100000000", "--layers", "1000"]);
    refused("train_bert", &["--hidden", "60000000", "--layers", "10000", "--heads", "1"]);
    let labelled = place.write("labelled.tsv", b"label\ttext\na\tone text\nb\tanother\na\tthree\nb\tfour\n");
    let classify = ["classify", "--data", &labelled, "--hidden", "100000000", "--layers", "1000"];
    Example("train_rnn").assert_refused(&classify, 1, &["of memory", "choose smaller sizes"]);
}
