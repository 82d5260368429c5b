//! LLaMA, Mistral, Qwen2 and Qwen3 against transformers: grouped-query attention, all rotary scalings, windows, biases, tied
//! and untied output layers, all namings and formats. Fixtures: tools/fixtures/llama.py.

use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_models::{CausalLm, Llama, LlamaConfig, Pretrained, PretrainedConfig, llama::published_names};
use grove_tree::{eq, leaves};
use std::path::{Path, PathBuf};

use crate::arrays::same_arrays;
use crate::decoder::{check_cache, check_forward, check_gradients, check_logits};
use crate::reference::{LLAMAS, Reference};

/// Variants of naming and format, each with the model that has the same weights.
const VARIANTS: [(&str, &str); 6] = [
    ("no_prefix", "gqa"),
    ("with_inv_freq", "gqa"),
    ("sharded", "gqa"),
    ("meta", "gqa"),
    ("tied_lm_head_present", "mqa"),
    ("qwen3.gguf", "qwen3"),
];

/// GGUF files, named by the dtypes of their weights.
const GGUF: [&str; 8] = ["f32", "f16", "bf16", "q8_0", "q4_0_to_q5_1", "q4_1_q6_k", "q4_k_q5_k", "q2_k_q3_k"];

/// Models whose gradients are stored.
const WITH_GRADIENTS: [&str; 4] = ["gqa2", "mqa", "biased", "qwen3"];

fn fixtures() -> PathBuf {
    Path::new("tests/fixtures/llama").into()
}

fn open<B: Backend>(path: impl AsRef<Path>, device: &B::Device) -> Llama<B> {
    let (model, report) = Llama::from_path(path.as_ref(), device, Some(DType::F32)).unwrap();
    assert!(report.is_complete(), "{}: {report}", path.as_ref().display());
    model
}

fn load<B: Backend>(name: &str, device: &B::Device) -> (Reference, Llama<B>) {
    let reference = Reference::of("llama", name);
    let model = open(&reference.directory, device);
    (reference, model)
}

fn forward<B: Backend>(device: B::Device) {
    for name in LLAMAS {
        let (reference, model) = load::<B>(name, &device);
        check_forward(&reference, &model, &device);
    }
}

fn gradients<B: Backend>(device: B::Device) {
    for name in WITH_GRADIENTS {
        let (reference, model) = load::<B>(name, &device);
        check_gradients(&reference, &model, &published_names(&model.config), &device);
    }
}

/// Decoding with a cache, in steps. Length-dependent scaling is only checked within the training length; beyond it,
/// transformers keeps earlier keys with their old rotation too.
fn cache<B: Backend>(device: B::Device) {
    for name in ["mha", "gqa", "mistral", "qwen3", "rope_llama3", "rope_yarn"] {
        let (reference, model) = load::<B>(name, &device);
        check_cache(&model, reference.tensor_of_ids("input_ids", &device), &[4, 1, 6, 1]);
    }
    let (reference, model) = load::<B>("rope_linear", &device);
    check_cache(&model, reference.tensor_of_ids("deep.input_ids", &device), &[200, 1, 150, 1, 1]);
}

/// One kind of model with all checks, which also run on wgpu.
fn one_kind<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("gqa2", &device);
    check_forward(&reference, &model, &device);
    check_gradients(&reference, &model, &published_names(&model.config), &device);
    check_cache(&model, reference.tensor_of_ids("input_ids", &device), &[9, 1]);
}

on_each_backend!(forward, gradients, cache, gguf, one_kind);

type Flex = grove_backend::Flex;

fn flex(path: &str) -> Llama<Flex> {
    open(fixtures().join(path), &Default::default())
}

#[test]
fn every_published_naming_loads() {
    for (variant, original) in VARIANTS {
        let (model, original) = (flex(&format!("variants/{variant}")), flex(original));
        assert!(same_arrays(&model, &original), "{variant}");
    }
}

/// Meta's files: interleaved query and key rows, LLaMA 3.1's scaling, 16-bit weights.
#[test]
fn metas_files_compute_the_same() {
    let reference = Reference::of("llama", "variants/meta_scaled");
    let file = reference.directory.join("consolidated.00.pth");
    let (model, report) = Llama::<Flex>::from_path(file, &Default::default(), None).unwrap();
    assert!(report.is_complete(), "{report}");
    check_forward(&reference, &model, &Default::default());
}

/// 16-bit weights are widened tile by tile: the results are those of the rounded weights in f32.
#[test]
fn weights_of_16_bits_compute_in_f32() {
    for (variant, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
        let reference = Reference::of("llama", &format!("variants/{variant}"));
        let (model, _) = Llama::<Flex>::from_path(&reference.directory, &Default::default(), None).unwrap();
        let types: std::collections::BTreeMap<String, DType> =
            leaves(&model).into_iter().map(|(path, leaf)| (path, leaf.dtype())).collect();
        assert_eq!(types["layers.0.self_attn.q_proj.weight"], dtype);
        assert_eq!(types["embed_tokens.weight"], dtype);
        assert_eq!(types["norm.weight"], DType::F32);
        check_forward(&reference, &model, &Default::default());
    }
}

/// Quantized weights stay quantized in memory, or are unpacked if f32 is requested.
fn gguf<B: Backend>(device: B::Device) {
    for name in GGUF {
        let file = fixtures().join("gguf").join(format!("{name}.gguf"));
        let reference = Reference::beside(&file);
        for dtype in [None, Some(DType::F32)] {
            let loaded = Llama::<B>::from_path(&file, &device, dtype);
            if name == "bf16" && dtype.is_none() && !B::supports_dtype(&device, DType::BF16) {
                let error = loaded.unwrap_err().to_string();
                assert!(error.contains("bf16.gguf") && error.contains("would be bf16, which"), "{error}");
                continue;
            }
            let (model, report) = loaded.unwrap();
            assert!(report.is_complete(), "{name}: {report}");
            let keeps_blocks = B::MIXED_DTYPE_WEIGHTS && dtype.is_none();
            assert_eq!(model.is_quantized(), keeps_blocks && name.contains('q') && name != "f16", "{name}");
            // Formats without a kernel are unpacked to 16 bits. GPUs compute in the dtype of the weights.
            let computes_in =
                |dtype| !B::MIXED_DTYPE_WEIGHTS && leaves(&model).iter().any(|(_, leaf)| leaf.dtype() == dtype);
            let tolerance = match name {
                _ if computes_in(DType::BF16) => 5e-2,
                _ if computes_in(DType::F16) => 5e-3,
                "q2_k_q3_k" if dtype.is_none() => 5e-3,
                _ => 1e-4,
            };
            check_logits(&reference, &model, &device, tolerance);
        }
    }
    for name in ["rope_linear", "rope_llama3"] {
        let file = fixtures().join("gguf").join(format!("{name}.gguf"));
        let dtype = (!B::MIXED_DTYPE_WEIGHTS).then_some(DType::F32);
        let (model, _) = Llama::<B>::from_path(&file, &device, dtype).unwrap();
        check_forward(&Reference::beside(&file), &model, &device);
    }
}

/// Inputs of quantized layers are rounded where asked for: the logits are near those without rounding, and differ. Other models
/// cannot round.
#[test]
fn inputs_of_quantized_layers_may_be_rounded() {
    let ids = || Tensor::<Flex, 2, Int>::from_ints([[5, 17, 40, 3, 9]], &Default::default());
    let logits = |model: &Llama<Flex>| model.forward(ids(), None).into_data().iter::<f32>().collect::<Vec<_>>();
    let stored = |name: &str| {
        let file = fixtures().join("gguf").join(format!("{name}.gguf"));
        Llama::<Flex>::from_path(file, &Default::default(), None).unwrap().0
    };
    for name in ["q8_0", "q4_0_to_q5_1", "q4_1_q6_k", "q4_k_q5_k"] {
        let model = stored(name);
        let exact = logits(&model);
        let rounded = logits(&model.with_quantized_activations().unwrap());
        let size = exact.iter().fold(0f32, |size, x| size.max(x.abs()));
        let error = exact.iter().zip(&rounded).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(error > 1e-6 * size && error < 0.05 * size, "{name}: {error} of {size}");
    }
    assert!(stored("f16").with_quantized_activations().is_none());
}

#[test]
fn quantized_leaves_are_not_saved() {
    let file = fixtures().join("gguf/q8_0.gguf");
    let directory = tempfile::tempdir().unwrap();
    let (model, _) = Llama::<Flex>::from_path(&file, &Default::default(), None).unwrap();
    let message = model.save_pretrained(directory.path().join("new")).unwrap_err().to_string();
    assert!(message.contains("quantized") && !directory.path().join("new").exists(), "{message}");
    let (model, _) = Llama::<Flex>::from_path(&file, &Default::default(), Some(DType::F32)).unwrap();
    model.save_pretrained(directory.path()).unwrap();
    assert!(eq(&open::<Flex>(directory.path(), &Default::default()), &model));
}

#[test]
fn configurations_of_transformers_4_mean_the_same() {
    for name in ["gqa2", "mha", "mistral", "qwen2", "rope_dynamic", "rope_linear", "rope_llama3", "rope_yarn"] {
        let older = LlamaConfig::from_file(fixtures().join(format!("configs_v4/{name}.json"))).unwrap();
        let newer = LlamaConfig::from_file(fixtures().join(name)).unwrap();
        assert_eq!(older.rope().unwrap(), newer.rope().unwrap(), "{name}");
        let windows =
            |config: &LlamaConfig| (0..config.num_hidden_layers).map(|i| config.window(i)).collect::<Vec<_>>();
        assert_eq!(windows(&older), windows(&newer), "{name}");
        assert_eq!(older.attention_biases(), newer.attention_biases(), "{name}");
    }
}

#[test]
fn saved_models_come_back() {
    for name in ["gqa2", "mqa", "qwen2"] {
        let directory = tempfile::tempdir().unwrap();
        let model = flex(name);
        model.save_pretrained(directory.path()).unwrap();
        let again = open::<Flex>(directory.path(), &Default::default());
        assert!(eq(&again, &model), "{name}");
        assert_eq!(again.config, model.config, "{name}");
    }
}

#[test]
fn impossible_configurations_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let message = |text: &str| {
        std::fs::write(directory.path().join("config.json"), text).unwrap();
        let message = LlamaConfig::from_file(directory.path()).unwrap_err().to_string();
        assert!(message.contains("config.json"), "{message}");
        message
    };
    for (text, word) in [
        (r#"{"model_type": "gpt2"}"#, "gpt2"),
        (r#"{"num_attention_heads": 7}"#, "not divisible"),
        (r#"{"num_key_value_heads": 5}"#, "num_key_value_heads"),
        (r#"{"head_dim": 3}"#, "even"),
        (r#"{"rope_theta": -1}"#, "rope_theta"),
        (r#"{"rope_scaling": {"rope_type": "spiral", "factor": 2}}"#, "spiral"),
        (r#"{"rope_scaling": {"type": "linear"}}"#, "factor"),
        (r#"{"rope_parameters": {"rope_type": "llama3", "factor": 0}}"#, "low_freq_factor"),
        (r#"{"eos_token_id": "two"}"#, "token"),
        (r#"{"num_hidden_layers": 1000000}"#, "num_hidden_layers"),
        (r#"{"vocab_size": 99999999999}"#, "vocab_size"),
        (r#"{"num_hidden_layers": 2, "layer_types": ["full_attention"]}"#, "layer_types has 1 entries"),
        (r#"{"num_hidden_layers": 1, "layer_types": ["chunked_attention"]}"#, "layer_types[0] is 'chunked_attention'"),
        (
            r#"{"model_type": "qwen2", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}"#,
            "layer_types[1] is 'sliding_attention', but use_sliding_window is not true",
        ),
        (
            r#"{"model_type": "qwen3", "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": null,
                "use_sliding_window": true}"#,
            "sliding_window is null",
        ),
        (
            r#"{"model_type": "mistral", "num_hidden_layers": 1, "layer_types": ["sliding_attention"], "sliding_window": null}"#,
            "sliding_window is null",
        ),
    ] {
        let found = message(text);
        assert!(found.contains(word), "{text}: {found}");
    }
}

/// transformers' class of each `model_type` has its own defaults.
#[test]
fn fields_that_a_file_lacks_match_its_family() {
    let directory = tempfile::tempdir().unwrap();
    let read = |text: &str| {
        std::fs::write(directory.path().join("config.json"), text).unwrap();
        LlamaConfig::from_file(directory.path()).unwrap()
    };
    let mistral = read(r#"{"model_type": "mistral"}"#);
    assert_eq!((mistral.intermediate_size, mistral.n_kv_head(), mistral.max_position_embeddings), (14336, 8, 131072));
    assert_eq!(mistral.window(0), Some(4096));
    assert_eq!(read(r#"{"model_type": "mistral", "sliding_window": null}"#).window(0), None);
    let types =
        r#"{"model_type": "mistral", "num_hidden_layers": 2, "layer_types": ["attention", "sliding_attention"]}"#;
    assert_eq!((read(types).window(0), read(types).window(1)), (None, Some(4096)), "as AutoModelForCausalLM reads it");
    let without = LlamaConfig { sliding_window: None, ..mistral };
    assert_eq!(read(&serde_json::to_string(&without).unwrap()).window(0), None, "it comes back");
    let qwen2 = read(r#"{"model_type": "qwen2", "use_sliding_window": true}"#);
    assert_eq!((qwen2.vocab_size, qwen2.intermediate_size, qwen2.max_position_embeddings), (151936, 22016, 32768));
    assert_eq!((qwen2.window(27), qwen2.window(28), qwen2.eos_token_id.to_vec()), (None, Some(4096), vec![]));
    let qwen3 = read(r#"{"model_type": "qwen3", "hidden_size": 1024, "num_attention_heads": 32}"#);
    assert_eq!((qwen3.head_dim(), qwen3.n_kv_head(), qwen3.window(40)), (128, 32, None));
    let llama = read("{}");
    assert_eq!((llama.intermediate_size, llama.n_kv_head(), llama.eos_token_id.to_vec()), (11008, 32, vec![2]));
}
