//! Metadata of GGUF files: rotary positions against transformers and llama.cpp's formula, and keys that are refused or
//! named. Fixtures: tools/fixtures/gguf_rope.py.

use grove_layers::RopeScaling;
use grove_models::{LlamaConfig, ModelError, ModelFiles, PretrainedConfig};
use grove_text::{Tokenizer, chat_template};
use grove_weights::TensorFiles;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

use crate::rope::Angles;

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns the number of a value's type, and its bytes: integers of 32 bits, and floats of 32 bits.
fn typed(value: &Value) -> (u32, Vec<u8>) {
    match value {
        Value::Bool(flag) => (7, vec![u8::from(*flag)]),
        Value::String(string) => (8, text(string)),
        Value::Number(number) if number.is_u64() => (4, (number.as_u64().unwrap() as u32).to_le_bytes().to_vec()),
        Value::Number(number) if number.is_i64() => (5, (number.as_i64().unwrap() as i32).to_le_bytes().to_vec()),
        Value::Number(number) => (6, (number.as_f64().unwrap() as f32).to_le_bytes().to_vec()),
        Value::Array(values) => {
            let values: Vec<(u32, Vec<u8>)> = values.iter().map(typed).collect();
            let kind = values.first().map_or(4, |(kind, _)| *kind);
            let mut bytes = [&kind.to_le_bytes()[..], &(values.len() as u64).to_le_bytes()].concat();
            bytes.extend(values.into_iter().flat_map(|(_, value)| value));
            (9, bytes)
        }
        other => panic!("a GGUF file has no {other}"),
    }
}

/// Returns the bytes of a GGUF file with tensors of 32-bit floats. Shapes are outermost first.
fn gguf(keys: &Map<String, Value>, tensors: &[(&str, &[usize], Vec<f32>)]) -> Vec<u8> {
    let counts = [tensors.len() as u64, keys.len() as u64].map(u64::to_le_bytes).concat();
    let mut bytes = [&b"GGUF"[..], &3u32.to_le_bytes(), &counts].concat();
    for (key, value) in keys {
        let (kind, value) = typed(value);
        bytes.extend(text(key));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(value);
    }
    let mut data: Vec<u8> = Vec::new();
    for (name, shape, values) in tensors {
        bytes.extend(text(name));
        bytes.extend((shape.len() as u32).to_le_bytes());
        bytes.extend(shape.iter().rev().flat_map(|size| (*size as u64).to_le_bytes()));
        bytes.extend(0u32.to_le_bytes()); // the type f32
        bytes.extend((data.len() as u64).to_le_bytes());
        data.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        data.resize(data.len().next_multiple_of(32), 0);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    [bytes, data].concat()
}

/// A small LLaMA in a GGUF file, without most of its weights.
struct File {
    folder: tempfile::TempDir,
}

impl File {
    /// Writes a file with further keys and `rope_freqs.weight`.
    fn new(more: Value, factors: Option<Vec<f32>>) -> Self {
        let mut keys = json!({
            "general.architecture": "llama", "llama.context_length": 64, "llama.embedding_length": 32,
            "llama.block_count": 1, "llama.feed_forward_length": 8, "llama.attention.head_count": 2,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0,
            "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "▁", "a", "▁a"],
            "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -2.0, -3.0, -1.0], "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1],
            "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
        });
        keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (embedding, count) = ([6, 32], [factors.as_ref().map_or(0, Vec::len)]);
        let mut tensors = vec![("token_embd.weight", &embedding[..], vec![0.0; 6 * 32])];
        if let Some(factors) = factors {
            tensors.push(("rope_freqs.weight", &count[..], factors));
        }
        let file = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(file.path(), gguf(keys.as_object().unwrap(), &tensors)).unwrap();
        file
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }

    fn config(&self) -> Result<LlamaConfig, ModelError> {
        LlamaConfig::of(self.path(), &TensorFiles::open(self.path()).unwrap())
    }
}

/// Reads the configuration of a file with further keys.
fn config(more: Value) -> Result<LlamaConfig, ModelError> {
    File::new(more, None).config()
}

/// Asserts that an error names the file, and the key with its value.
fn assert_refused<T>(result: Result<T, impl std::fmt::Display>, key: &str, value: &str) {
    let Err(error) = result.map(drop) else { panic!("{key} with {value} is accepted") };
    let error = error.to_string();
    assert!(error.contains(&format!("model.gguf: {key} is {value}")), "{error}");
}

#[derive(Deserialize)]
struct Case {
    name: String,
    keys: Map<String, Value>,
    factors: Option<Vec<f32>>,
    #[serde(flatten)]
    angles: Angles,
}

#[test]
fn angles_match_transformers_and_llama_cpp() {
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read("tests/fixtures/gguf_rope.json").unwrap()).unwrap();
    assert!(cases.len() > 15);
    for Case { name, keys, factors, angles } in cases {
        let keys = keys.into_iter().map(|(key, value)| (format!("llama.{key}"), value)).collect();
        let config = File::new(Value::Object(keys), factors).config().unwrap_or_else(|error| panic!("{name}: {error}"));
        angles.check(&name, &config);
    }
}

#[test]
fn recognises_llama_3_by_its_factors_unless_they_are_scaled_again() {
    // By hand: pairs with wavelengths below 2048 positions, above 8192, and between.
    let factor = |pair: i32| {
        let turns = 8192.0 * 10000f64.powf(-f64::from(pair) / 8.0) / (2.0 * std::f64::consts::PI);
        let high = ((turns - 1.0) / 3.0).clamp(0.0, 1.0);
        (1.0 / (high + (1.0 - high) / 8.0)) as f32
    };
    let factors: Vec<f32> = (0..8).map(factor).collect();
    let rope = |more: Value| File::new(more, Some(factors.clone())).config().unwrap().rope().unwrap();
    let expected = RopeScaling::Llama3 { factor: 8.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original: 8192 };
    assert_eq!(rope(json!({})).scaling, expected);
    let twice: Vec<f32> = factors.iter().map(|factor| 2.0 * factor).collect();
    assert_eq!(rope(json!({"llama.rope.scaling.factor": 2.0})).scaling, RopeScaling::Factors(twice));

    let both = File::new(json!({"llama.rope.scaling.type": "yarn"}), Some(factors.clone())).config();
    let error = both.unwrap_err().to_string();
    assert!(error.contains("rope_freqs.weight and llama.rope.scaling.type 'yarn'"), "{error}");
    let short = File::new(json!({}), Some(vec![1.0; 4])).config().unwrap_err().to_string();
    assert!(short.contains("rope_freqs.weight has 4 factors, but a head has 8 pairs"), "{short}");
}

#[test]
fn refuses_scalings_that_change_angles() {
    let yarn = |more: Value| {
        let mut keys = json!({"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 4.0});
        keys.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config(keys)
    };
    for (name, value) in [("yarn_ext_factor", 0.5), ("yarn_attn_factor", 0.75), ("yarn_log_multiplier", 0.5)] {
        let key = format!("llama.rope.scaling.{name}");
        let more = Value::Object([(key.clone(), Value::from(value))].into_iter().collect());
        assert_refused(yarn(more.clone()), &key, &value.to_string());
        assert_refused(config(more), &key, &value.to_string());
    }
    let key = "llama.rope.scaling.attn_factor";
    assert_refused(config(json!({key: 0.5})), key, "0.5");
    let factors = File::new(json!({key: 0.5}), Some(vec![1.0; 8]));
    assert_refused(factors.config(), key, "0.5");
    assert_refused(config(json!({"llama.rope.scaling.type": "longrope"})), "llama.rope.scaling.type", "'longrope'");
    assert_refused(config(json!({"llama.rope.scaling.factor": -2.0})), "llama.rope.scaling.factor", "-2");
}

#[test]
fn refuses_keys_of_other_architectures_and_files() {
    for (key, value) in [
        ("llama.expert_count", json!(8)),
        ("llama.logit_scale", json!(0.5)),
        ("llama.attention.causal", json!(false)),
        ("llama.rope.freq_base", json!("large")),
        ("general.type", json!("adapter")),
        ("general.quantization_version", json!(1)),
        ("adapter.lora.alpha", json!(16.0)),
    ] {
        assert_refused(config(json!({key: value.clone()})), key, &value.to_string());
    }
    assert_refused(
        config(json!({"llama.attention.head_count_kv": [1, 2]})),
        "llama.attention.head_count_kv",
        "\"a list\"",
    );
    let neutral = json!({"llama.expert_count": 0, "llama.logit_scale": 1.0, "general.type": "model",
        "general.quantization_version": 2, "general.base_model.0.name": "another", "llama.attention.head_count_kv": [1, 1]});
    assert_eq!(config(neutral).unwrap().num_key_value_heads, Some(1));
}

#[test]
fn refuses_tokenizer_keys_that_change_tokens() {
    let plain = File::new(json!({}), None);
    assert_eq!(Tokenizer::from_path(plain.path()).unwrap().encode("a").unwrap(), [1, 5]);
    for (key, value, shown) in [
        ("tokenizer.ggml.add_sep_token", json!(true), "true"),
        ("tokenizer.ggml.remove_extra_whitespaces", json!(true), "true"),
        ("tokenizer.ggml.precompiled_charsmap", json!([1, 2]), "\"a list\""),
        ("tokenizer.ggml.add_bos_token", json!(1), "1"),
        ("tokenizer.rwkv.world", json!("words"), "\"words\""),
    ] {
        let file = File::new(json!({key: value}), None);
        assert_refused(Tokenizer::from_path(file.path()), key, shown);
    }
    let neutral = json!({"tokenizer.ggml.add_sep_token": false, "tokenizer.ggml.remove_extra_whitespaces": false,
        "tokenizer.ggml.precompiled_charsmap": [], "tokenizer.ggml.fim_pre_token_id": 3, "tokenizer.huggingface.json": "{}",
        "tokenizer.chat_template.tool_use": "x", "tokenizer.chat_templates": ["tool_use"]});
    let file = File::new(neutral, None);
    assert_eq!(Tokenizer::from_path(file.path()).unwrap().encode("a").unwrap(), [1, 5]);
    let error = chat_template(file.path()).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("model.gguf: it has the chat template tokenizer.chat_template.tool_use"), "{error}");
}

/// The process that reads the files is this test's program, since notes go to standard error, once per process.
#[test]
fn names_unknown_keys_once() {
    const CHILD: &str = "GROVE_TEST_GGUF_NOTES";
    if std::env::var_os(CHILD).is_some() {
        let file = File::new(
            json!({
                "general.of_tomorrow": 1, "llama.of_tomorrow": 1, "tokenizer.ggml.of_tomorrow": true,
                "general.sampling.temp": 0.6, "general.sampling.mirostat": 2, "general.sampling.mirostat_tau": 5.0,
                "general.name": "ours",
            }),
            None,
        );
        for _ in 0..2 {
            file.config().unwrap();
            Tokenizer::from_path(file.path()).unwrap();
        }
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "gguf::names_unknown_keys_once", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let notes = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{notes}");
    let once = [
        "note: ",
        "change nothing here: of_tomorrow",
        "change nothing here: general.of_tomorrow",
        "change nothing here: tokenizer.ggml.of_tomorrow",
    ];
    let counts = once.map(|part| notes.matches(part).count());
    assert_eq!(counts, [3, 1, 1, 1], "{notes}");
}

#[test]
fn recommended_sampling_is_read() {
    let more = json!({"general.sampling.temp": 0.1, "general.sampling.top_k": 20, "general.sampling.sequence": "kpt"});
    let file = File::new(more, None);
    for path in [file.path(), file.folder.path().to_owned()] {
        let mut keys = ModelFiles::at(path).unwrap().gguf_sampling().unwrap();
        assert_eq!(keys.get::<f32>("general.sampling.temp").unwrap(), Some(0.1));
        assert_eq!(keys.get::<u32>("general.sampling.top_k").unwrap(), Some(20));
        assert_eq!(keys.get::<String>("general.sampling.sequence").unwrap().as_deref(), Some("kpt"));
        let error = keys.get::<f32>("general.sampling.sequence").unwrap_err().to_string();
        assert!(error.contains("`general.sampling.sequence` is \"kpt\""), "{error}");
    }
    let other = ModelFiles::at("tests/fixtures/gpt2/tiny_a").unwrap();
    assert!(other.gguf_sampling().is_none());
}
