//! Models of a published size against transformers. The 124M GPT-2, with the directory that tools/make_gpt2_124m.py writes:
//! `GROVE_GPT2_124M=DIR cargo test -p grove-tasks --test tasks full_size::gpt2 -- --ignored --nocapture`

use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_models::{CausalLm, Gpt2, Llama, Pretrained};
use grove_tasks::{GenerateOptions, generate, generation::Sampling};
use grove_weights::TensorFiles;
use std::{path::PathBuf, time::Instant};

fn directory(suffix: &str) -> PathBuf {
    let directory = std::env::var("GROVE_GPT2_124M").expect("GROVE_GPT2_124M names the directory");
    PathBuf::from(format!("{directory}{suffix}"))
}

/// Returns the largest difference between two lists of values.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |max: f32, (x, y)| max.max((x - y).abs()))
}

fn check<B: Backend>(suffix: &str, tolerance: f32) -> Gpt2<B> {
    let device = B::Device::default();
    let start = Instant::now();
    let (model, _) = Gpt2::<B>::from_path(directory(suffix), &device, None).expect("it loads");
    let loaded = start.elapsed();
    let reference = TensorFiles::open(directory("").join("reference.safetensors")).expect("the reference");
    let ids = reference.tensor("input_ids").expect("ids");
    let prompt: Vec<u32> = ids.iter::<i64>().map(|id| id as u32).collect();
    let logits = model.forward(Tensor::<B, 2, Int>::from_data(ids, &device), None).into_data().convert::<f32>();
    let expected = reference.tensor("logits").expect("logits");
    let apart = apart(logits.as_slice().expect("f32"), expected.as_slice().expect("f32"));
    println!("{}{suffix}: loaded in {loaded:.2?}, logits apart by {apart:.1e}", B::name(&device));
    assert!(apart <= tolerance, "logits are apart by {apart}");

    let text = std::fs::read_to_string(directory("").join("reference.json")).expect("the reference");
    let reference: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let expected: Vec<u32> = serde_json::from_value(reference["greedy_ids"].clone()).expect("numbers");
    let options = GenerateOptions {
        max_new_tokens: expected.len(),
        sampling: Sampling::greedy(),
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let made = generate(&model, &[prompt], &options, |_, _| true).expect("it generates");
    assert_eq!(made[0].ids, expected, "{suffix}");
    model
}

#[test]
#[ignore = "needs the directory that tools/make_gpt2_124m.py writes"]
fn gpt2_flex() {
    let model = check::<grove_backend::Flex>("", 1e-3);
    for copy in ["-sharded", "-bin"] {
        let same = check::<grove_backend::Flex>(copy, 1e-3);
        assert!(grove_tree::eq(&same, &model), "{copy}");
    }
    // The f16 file has half the precision, so the tolerance is larger.
    check::<grove_backend::Flex>("-f16", 0.2);
    if let Ok(export) = std::env::var("GROVE_EXPORT") {
        model.save_pretrained(export).expect("it saves");
    }
}

#[test]
#[ignore = "needs the directory that tools/make_gpt2_124m.py writes"]
fn gpt2_candle() {
    check::<grove_backend::Candle>("", 1e-3);
}

/// SmolLM2-135M-Instruct, or another GGUF file, against transformers' results for the same weights, after
/// `python tools/check_smollm2.py MODEL.gguf --out REFERENCE.safetensors`:
/// `GROVE_LLAMA=MODEL.gguf GROVE_LLAMA_REFERENCE=REFERENCE.safetensors cargo test -p grove-tasks --test tasks full_size::llama -- --ignored --nocapture`
#[test]
#[ignore = "needs a published model and the file of tools/check_smollm2.py"]
fn llama() {
    let path = |name: &str| PathBuf::from(std::env::var(name).unwrap_or_else(|_| panic!("{name} names a file")));
    let reference = TensorFiles::open(path("GROVE_LLAMA_REFERENCE")).expect("the reference");
    let tensor = |name: &str| reference.tensor(name).expect("a tensor");
    let ids = |name: &str| -> Vec<u32> { tensor(name).iter::<i64>().map(|id| id as u32).collect() };
    let (prompt, greedy) = (ids("input_ids"), ids("greedy_ids"));
    let device = Default::default();
    // Quantized, and unpacked to f32.
    for dtype in [None, Some(DType::F32)] {
        let (model, _) =
            Llama::<grove_backend::Flex>::from_path(path("GROVE_LLAMA"), &device, dtype).expect("it loads");
        let logits = model.forward(Tensor::from_data(tensor("input_ids"), &device), None);
        let expected = Tensor::from_data(tensor("logits"), &device);
        let apart = (logits - expected.clone()).abs().max().into_scalar();
        println!("{dtype:?}: logits up to {:.2}, apart by at most {apart:.1e}", expected.abs().max().into_scalar());
        assert!(apart <= 1e-2, "logits are apart by {apart}");
        let options = GenerateOptions {
            max_new_tokens: greedy.len(),
            sampling: Sampling::greedy(),
            ..GenerateOptions::default()
        };
        let written = generate(&model, std::slice::from_ref(&prompt), &options, |_, _| true).expect("it writes");
        // The reference includes the end token.
        assert_eq!(written[0].ids, greedy[..written[0].ids.len()]);
        assert!(written[0].ids.len() + 1 >= greedy.len(), "{:?}", written[0]);
    }
}
