//! End-to-end tests of the example `convert`: the files that it writes, that they load, and error messages.

use crate::common;
use serde_json::{Value, json};
use std::fs;

use crate::common::{Example, Place, damaged, fixture, json_file};

const CONVERT: Example = Example("convert");
const GPT2: Example = Example("gpt2");
const LLAMA: Example = Example("llama");
const RESNET: Example = Example("resnet");

/// Returns the header of a safetensors file: names, dtypes and shapes of the tensors.
fn tensors(file: std::path::PathBuf) -> serde_json::Map<String, Value> {
    let bytes = fs::read(file).expect("weights");
    let length = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")) as usize;
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..8 + length]).expect("a header");
    header.remove("__metadata__");
    header
}

#[track_caller]
fn assert_near(a: &Value, b: &Value, tolerance: f64) {
    let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
    assert!((a / b - 1.0).abs() < tolerance, "{a} and {b}");
}

#[test]
fn gguf_becomes_safetensors_with_its_tokenizer() {
    let place = Place::new();
    // The norms of a GGUF file are f32 and are rounded like the other weights.
    for (name, asked, dtype, stored, tolerance) in
        [("f16", &[][..], "f16", "F16", 1e-3), ("q8_0", &["--dtype", "f32"], "f32", "F32", 1e-6)]
    {
        let (source, target) = (format!("models/tests/fixtures/llama/gguf/{name}.gguf"), place.named(name));
        let made = CONVERT.json(&[&[&*source, &*target, "--json"][..], asked].concat());
        assert_eq!((&made["kind"], &made["dtype"]), (&"Llama".into(), &dtype.into()), "{made}");
        for file in ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
            assert!(made["files"].as_array().expect("a list").contains(&file.into()), "{made}");
        }
        let tensors = tensors(place.path(name).join("model.safetensors"));
        assert!(tensors.contains_key("model.layers.0.self_attn.q_proj.weight"), "{:?}", tensors.keys());
        assert!(tensors.values().all(|tensor| tensor["dtype"] == stored), "{tensors:?}");

        let score = |model: &str| {
            LLAMA.json(&["--model", model, "--prompt", "The old apple tree", "--score", "--json", "--dtype", "f32"])
        };
        let (before, after) = (score(&source), score(&target));
        assert_eq!(before["prompt_ids"], after["prompt_ids"], "the tokenizer is the same");
        assert_near(&before["loss"], &after["loss"], tolerance);
    }
    // A bf16 file stays bf16; without a tokenizer in the file, none is written.
    let target = place.named("bf16");
    let output = CONVERT.run(&["models/tests/fixtures/llama/gguf/bf16.gguf", &target], "");
    let warning = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && warning.contains("no tokenizer is written"), "{warning}");
    assert!(tensors(place.path("bf16/model.safetensors")).values().all(|tensor| tensor["dtype"] == "BF16"));
    // Text output. Quantized blocks become f16.
    let target = place.named("told");
    let output = CONVERT.run(&["models/tests/fixtures/llama/gguf/q4_k_q5_k.gguf", &target], "");
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && stdout.contains("Llama") && stdout.contains("in f16"), "{stdout}");
    assert!(stdout.contains("\n  model.safetensors\n"), "{stdout}");
}

#[test]
fn pytorch_files_become_safetensors_of_any_size() {
    let place = Place::new();
    let score = |model: &str| GPT2.json(&["--model", model, "--prompt-ids", "5,17,40,3,9", "--score", "--json"]);
    let (source, whole, shards) = (fixture("variants/pytorch_bin"), place.named("whole"), place.named("shards"));
    let made = CONVERT.json(&[&source, &whole, "--json"]);
    assert_eq!(made["files"], json!(["config.json", "model.safetensors"]));
    assert_eq!(score(&source)["loss"], score(&whole)["loss"], "the same bits");

    let made = CONVERT.json(&[&source, &shards, "--max-shard-size", "20KB", "--json"]);
    let files: Vec<&str> = made["files"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert!(files.contains(&"model.safetensors.index.json") && files.len() > 4, "{files:?}");
    assert_eq!(score(&source)["loss"], score(&shards)["loss"]);
    let index = json_file(place.path("shards/model.safetensors.index.json"));
    assert_eq!(
        index["weight_map"].as_object().map(serde_json::Map::len),
        Some(tensors(place.path("whole/model.safetensors")).len())
    );

    // A sharded checkpoint becomes one 16-bit file, with the dtype in its config.
    let halved = place.named("halved");
    CONVERT.json(&[&fixture("variants/sharded_bin"), &halved, "--dtype", "bf16", "--json"]);
    assert!(tensors(place.path("halved/model.safetensors")).values().all(|tensor| tensor["dtype"] == "BF16"));
    assert_eq!(json_file(place.path("halved/config.json"))["dtype"], "bfloat16");
}

#[test]
fn files_beside_the_weights_come_along() {
    let place = Place::new();
    let target = place.named("gpt2");
    let made = CONVERT.json(&[&fixture("tiny_text"), &target, "--json"]);
    assert!(made["files"].as_array().expect("a list").contains(&"tokenizer.json".into()), "{made}");
    let write = |model: &str| {
        let settings = ["--prompt", "A tree", "--temperature", "0", "--max-new-tokens", "8", "--json"];
        GPT2.json(&[&["--model", model], &settings[..]].concat())["text"].clone()
    };
    assert_eq!(write(&fixture("tiny_text")), write(&target));

    // torchvision's names are converted to transformers' names.
    let (source, target) = ("models/tests/fixtures/resnet/torchvision_basic", place.named("resnet"));
    CONVERT.json(&[source, &target, "--json"]);
    let tensors = tensors(place.path("resnet/model.safetensors"));
    assert!(tensors.keys().any(|name| name.starts_with("resnet.encoder.stages.0.")), "{:?}", tensors.keys());
    // An architecture that transformers lacks keeps its names and its preprocessing.
    let (source, target) = ("models/assets/mnist-resnet", place.named("mnist"));
    let made = CONVERT.json(&[source, &target, "--json"]);
    assert!(made["files"].as_array().expect("a list").contains(&"preprocessor_config.json".into()), "{made}");
    let look = |model: &str| RESNET.json(&["--model", model, "--json"])["images"].clone();
    assert_eq!(look(source), look(&target));
}

#[test]
fn bad_input_is_refused() {
    let place = Place::new();
    let (gguf, target) = ("models/tests/fixtures/llama/gguf/q8_0.gguf", place.named("new"));
    CONVERT.assert_refused(&["./nowhere", &target], 1, &["./nowhere"]);
    CONVERT.assert_refused(&["nobody/nothing", &target], 1, &["nobody/nothing"]);
    let bytes = fs::read(gguf).expect("a fixture");
    let half = place.write("half.gguf", &bytes[..bytes.len() / 2]);
    CONVERT.assert_refused(&[&half, &target], 1, &["half.gguf"]);
    let page = place.write("page.gguf", "<!DOCTYPE html><html>Sign in</html>");
    CONVERT.assert_refused(&[&page, &target], 1, &["page.gguf"]);
    let page = damaged("tiny_a", "model.safetensors", |_| b"<!DOCTYPE html><html>".to_vec());
    CONVERT.assert_refused(&[common::text(page.path()), &target], 1, &["model.safetensors"]);
    let broken = damaged("tiny_text", "tokenizer.json", |_| b"{".to_vec());
    CONVERT.assert_refused(&[common::text(broken.path()), &target], 1, &["tokenizer.json"]);
    let other = damaged("tiny_a", "config.json", |_| br#"{"model_type": "t5"}"#.to_vec());
    CONVERT.assert_refused(
        &[common::text(other.path()), &target],
        1,
        &["config.json", "t5", "new.safetensors", "keeps their names"],
    );
    let weights = fs::read(fixture("tiny_a") + "/model.safetensors").expect("a fixture");
    let alone = place.write("model.safetensors", &weights);
    CONVERT.assert_refused(&[&alone, &target], 1, &["config.json", "put the config.json of the model beside"]);
    assert!(!place.path("new").exists(), "refused before anything was written");

    CONVERT.assert_refused(&[gguf, &target, "--dtype", "q8"], 2, &["--dtype", "bf16"]);
    CONVERT.assert_refused(&[gguf, &target, "--max-shard-size", "large"], 2, &["--max-shard-size", "5GB"]);
    CONVERT.assert_refused(&[gguf], 2, &["TARGET"]);
    let file = place.write("file", "x");
    CONVERT.assert_refused(&[gguf, &file], 1, &["is a file"]);
    let kept = place.named(".");
    CONVERT.assert_refused(&[gguf, &kept], 1, &["not empty", "--overwrite"]);

    // --overwrite replaces an existing model, but never the source.
    CONVERT.json(&[gguf, &target, "--json"]);
    CONVERT.assert_refused(&[gguf, &target], 1, &["not empty", "--overwrite"]);
    let made = CONVERT.json(&[&fixture("tiny_a"), &target, "--overwrite", "--json"]);
    assert_eq!(
        (&made["kind"], &json_file(place.path("new/config.json"))["model_type"]),
        (&"Gpt2".into(), &"gpt2".into())
    );
    CONVERT.assert_refused(&[&target, &target, "--overwrite"], 1, &["the checkpoint itself"]);
}
