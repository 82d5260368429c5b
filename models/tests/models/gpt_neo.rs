//! GPT-Neo against transformers: both kinds of attention, logits, loss, gradients, decoding beyond the window, and all
//! namings. Fixtures: tools/fixtures/gpt_neo.py.

use burn::tensor::DType;
use grove_backend::Backend;
use grove_models::{
    GptNeo, GptNeoConfig, Pretrained, PretrainedConfig,
    gpt_neo::{AttentionKind, published_names},
};
use grove_tree::{all_close, count_params, eq};
use std::path::Path;

use crate::decoder::{check_cache, check_forward, check_gradients};
use crate::reference::Reference;

fn load<B: Backend>(name: &str, device: &B::Device) -> (Reference, GptNeo<B>) {
    let reference = Reference::of("gpt_neo", name);
    let (model, report) = GptNeo::from_path(&reference.directory, device, None).unwrap();
    assert!(report.is_complete(), "{name}: {report}");
    (reference, model)
}

fn forward_and_gradients<B: Backend>(device: B::Device) {
    for name in ["tiny", "global_only"] {
        let (reference, model) = load::<B>(name, &device);
        check_forward(&reference, &model, &device);
        check_gradients(&reference, &model, &published_names(&model.config), &device);
    }
}

fn cache<B: Backend>(device: B::Device) {
    for name in ["tiny", "global_only"] {
        let (reference, model) = load::<B>(name, &device);
        check_cache(&model, reference.tensor_of_ids("input_ids", &device), &[5, 1, 2, 1, 12]);
    }
}

/// Checks that also run on wgpu.
fn one_kind<B: Backend>(device: B::Device) {
    let (reference, model) = load::<B>("tiny", &device);
    check_forward(&reference, &model, &device);
    check_gradients(&reference, &model, &published_names(&model.config), &device);
}

on_each_backend!(forward_and_gradients, cache, one_kind);

type Flex = grove_backend::Flex;

#[test]
fn kinds_alternate() {
    let (_, model) = load::<Flex>("tiny", &Default::default());
    let windows: Vec<_> = model.h.iter().map(|block| block.attn.window).collect();
    assert_eq!(windows, [None, Some(7), None, Some(7)]);
    assert_eq!(model.config.kinds().next(), Some(AttentionKind::Global));
}

#[test]
fn every_published_naming_loads() {
    let (_, original) = load::<Flex>("tiny", &Default::default());
    for variant in ["no_prefix", "tied_lm_head_present", "with_masked_bias"] {
        let path = Path::new("tests/fixtures/gpt_neo/variants").join(variant);
        let (model, report) = GptNeo::<Flex>::from_path(path, &Default::default(), None).unwrap();
        assert!(report.is_complete() && all_close(&model, &original, 0.0, 0.0), "{variant}: {report}");
    }
}

/// 16-bit weights are widened tile by tile: the results are those of the rounded weights in f32.
#[test]
fn weights_of_16_bits_compute_in_f32() {
    for (variant, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
        let reference = Reference::of("gpt_neo", &format!("variants/{variant}"));
        let (model, _) = GptNeo::<Flex>::from_path(&reference.directory, &Default::default(), None).unwrap();
        assert_eq!(model.wte.weight.dtype(), dtype);
        assert_eq!(model.h[0].mlp.c_fc.weight.dtype(), dtype);
        assert_eq!(model.ln_f.weight.dtype(), DType::F32);
        check_forward(&reference, &model, &Default::default());
    }
}

#[test]
fn saved_models_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let (_, model) = load::<Flex>("tiny", &Default::default());
    model.save_pretrained(directory.path()).unwrap();
    let (again, report) = GptNeo::<Flex>::from_path(directory.path(), &Default::default(), None).unwrap();
    assert!(eq(&again, &model) && report.is_complete());
    assert_eq!(again.config, model.config);
}

#[test]
fn published_sizes_have_the_published_numbers_of_parameters() {
    // Counted by transformers: `sum(p.numel() for p in GPTNeoForCausalLM(config).parameters())`.
    for (name, count) in
        [("gpt-neo-125m", 125_198_592), ("gpt-neo-1.3B", 1_315_575_808), ("gpt-neo-2.7B", 2_651_307_520)]
    {
        let skeleton = GptNeo::<Flex>::skeleton(&GptNeoConfig::preset(name).unwrap()).unwrap();
        assert_eq!(count_params(&skeleton), count, "{name}");
    }
}

#[test]
fn a_config_of_another_model_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (text, word) in [
        (r#"{"model_type": "gpt2"}"#, "gpt2"),
        (r#"{"attention_types": [[["global", "sideways"], 12]]}"#, "sideways"),
        (r#"{"num_layers": 5}"#, "attention_types"),
    ] {
        std::fs::write(directory.path().join("config.json"), text).unwrap();
        let message = GptNeoConfig::from_file(directory.path()).unwrap_err().to_string();
        assert!(message.contains("config.json") && message.contains(word), "{message}");
    }
}
