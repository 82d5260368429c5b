//! GPT-2 against transformers: logits, loss, gradients, decoding with a cache, and all variants of the published names.
//! Fixtures: tools/fixtures/gpt2.py.

use crate::common;
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained, PretrainedConfig};
use grove_transform::{Balanced, GradOptions, value_and_grad};
use grove_tree::{Array, all_close, cast, eq, leaves};
use grove_weights::TensorFiles;
use std::path::{Path, PathBuf};

use crate::arrays::same_arrays;

fn fixtures() -> PathBuf {
    Path::new("tests/fixtures/gpt2").into()
}

/// Reference values from transformers.
struct Reference(TensorFiles);

impl Reference {
    fn of(model: &str) -> Self {
        Self(TensorFiles::open(fixtures().join(model).join("reference.safetensors")).unwrap())
    }

    fn data(&self, name: &str) -> TensorData {
        self.0.tensor(name).unwrap()
    }

    fn int<B: Backend>(&self, name: &str, device: &B::Device) -> Tensor<B, 2, Int> {
        Tensor::from_data(self.data(name), device)
    }
}

/// Asserts `max |a - b| <= tolerance * max |b|`.
fn assert_close(what: &str, a: TensorData, b: TensorData, tolerance: f64) {
    assert_eq!(a.shape, b.shape, "{what}");
    let (a, b): (Vec<f64>, Vec<f64>) = (a.iter().collect(), b.iter().collect());
    let (apart, largest) = common::distance(&a, &b);
    assert!(apart <= tolerance * largest, "{what}: apart by {apart}, the largest is {largest}");
}

fn load<B: Backend>(model: &str, device: &B::Device) -> Gpt2<B> {
    Gpt2::from_path(fixtures().join(model), device, None).unwrap().0
}

fn forward_and_gradients<B: Backend>(device: B::Device) {
    for name in ["tiny_a", "tiny_b"] {
        let (model, reference) = (load::<B>(name, &device), Reference::of(name));
        let ids = || reference.int::<B>("input_ids", &device);
        assert_close(name, model.forward(ids(), None).into_data(), reference.data("logits"), 1e-4);

        let labels = reference.int::<B>("labels", &device);
        let (loss, grads) = value_and_grad(&model, |m| {
            let lift = |x: Tensor<B, 2, Int>| Tensor::from_inner(x);
            m.loss(lift(ids()), lift(labels.clone()), None)
        });
        assert_close(name, loss.into_data(), reference.data("loss"), 1e-4);
        for (path, grad) in leaves(&grads) {
            let expected = reference.data(&format!("grad.transformer.{path}"));
            assert_close(&format!("{name} {path}"), grad.into_data().unwrap(), expected, 1e-3);
        }
    }
}

/// Decoding with a cache gives the logits of one forward pass.
fn cache<B: Backend>(device: B::Device) {
    use grove_models::CausalLm;
    let (model, reference) = (load::<B>("tiny_a", &device), Reference::of("tiny_a"));
    let ids = reference.int::<B>("input_ids", &device);
    let [b, t] = ids.dims();
    let all = model.forward(ids.clone(), None);
    let mut state = model.new_cache(0);
    for (from, to) in [(0, 4), (4, 5), (5, 11), (11, t)] {
        let (logits, next) = model.decode(ids.clone().slice([0..b, from..to]), &[], state);
        let expected = all.clone().slice([0..b, to - 1..to]).reshape([b, 67]);
        assert_close(&format!("{from}..{to}"), logits.into_data(), expected.into_data(), 1e-4);
        state = next;
    }
}

on_each_backend!(forward_and_gradients, cache);

type Flex = grove_backend::Flex;

fn flex(model: &str) -> Gpt2<Flex> {
    load(model, &Default::default())
}

#[test]
fn every_published_naming_loads() {
    let original = flex("tiny_a");
    let variants = [
        "no_prefix",
        "with_prefix_transformer",
        "with_masked_bias",
        "tied_lm_head_present",
        "only_lm_head",
        "sharded",
        "pytorch_bin",
        "sharded_bin",
    ];
    for variant in variants {
        let model = flex(&format!("variants/{variant}"));
        assert!(same_arrays(&model, &original), "{variant}");
    }
}

#[test]
fn half_precision_files_load_as_f32_and_as_they_are() {
    for (variant, dtype) in [("f16", DType::F16), ("bf16", DType::BF16)] {
        let name = format!("variants/{variant}");
        let reference = Reference::of(&name);
        let ids = || reference.int::<Flex>("input_ids", &Default::default());
        assert_close(variant, flex(&name).forward(ids(), None).into_data(), reference.data("logits"), 1e-4);

        let (half, _) = Gpt2::<Flex>::from_path(fixtures().join(&name), &Default::default(), Some(dtype)).unwrap();
        assert_eq!(half.wte.weight.dtype(), dtype);
        let coarse = if dtype == DType::F16 { 1e-2 } else { 8e-2 };
        assert_close(variant, half.forward(ids(), None).into_data(), reference.data("logits"), coarse);
    }
}

/// One channel of the residual stream is 2500, as in GPT-2's own position embeddings. Its square exceeds the range of
/// f16.
fn a_large_channel_does_not_change_f16<B: Backend>(device: B::Device) {
    let reference = Reference::of("tiny_a");
    let ids = || reference.int::<B>("input_ids", &device);
    let mut model = load::<B>("tiny_a", &device);
    let [rows, _] = model.wpe.weight.shape();
    let large = Tensor::full([rows, 1], 2500.0, &device);
    model.wpe.weight = Array::new(model.wpe.weight.val().slice_assign([0..rows, 3..4], large));
    let half = cast(model, FloatDType::F16);
    // The same weights in both dtypes.
    let expected = cast(half.clone(), FloatDType::F32).forward(ids(), None).into_data();
    assert_close(&B::name(&device), half.forward(ids(), None).into_data(), expected, 4e-3);
}

on_each_backend!(a_large_channel_does_not_change_f16);

#[test]
fn candle_refuses_bf16_while_loading() {
    let device = Default::default();
    let error = Gpt2::<grove_backend::Candle>::from_path(fixtures().join("tiny_a"), &device, Some(DType::BF16));
    let error = error.unwrap_err().to_string();
    assert!(["bf16", "candle", "does not support", "tiny_a"].iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn saved_models_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let model = flex("tiny_b");
    model.save_pretrained(directory.path()).unwrap();
    let (again, report) = Gpt2::<Flex>::from_path(directory.path(), &Default::default(), None).unwrap();
    assert!(eq(&again, &model) && report.is_complete());
    assert_eq!(again.config, model.config);
}

#[test]
fn recomputation_changes_no_gradient() {
    let (model, reference) = (flex("tiny_a"), Reference::of("tiny_a"));
    let ids = reference.int::<Flex>("input_ids", &Default::default());
    let (_, grads, ()) = GradOptions::new().recompute::<Balanced>().value_and_grad_aux(&model, |m| {
        let ids: Tensor<_, 2, Int> = Tensor::from_inner(ids.clone());
        (m.loss(ids.clone(), ids, None), ())
    });
    let (_, plain) = value_and_grad(&model, |m| {
        let ids: Tensor<_, 2, Int> = Tensor::from_inner(ids.clone());
        m.loss(ids.clone(), ids, None)
    });
    assert!(all_close(&grads, &plain, 1e-5, 1e-7));
}

#[test]
fn a_config_of_another_model_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let write = |text: &str| std::fs::write(directory.path().join("config.json"), text).unwrap();
    let message = || Gpt2Config::from_file(directory.path()).unwrap_err().to_string();
    write(r#"{"model_type": "llama"}"#);
    assert!(message().contains("config.json") && message().contains("llama"), "{}", message());
    write(r#"{"n_embd": 10, "n_head": 3}"#);
    assert!(message().contains("not divisible"), "{}", message());
    write(r#"{"layer_norm_epsilon": NaN}"#);
    assert!(message().contains("`layer_norm_epsilon`") && message().contains("NaN"), "{}", message());
    write(r#"{"n_embd": -1}"#);
    assert!(message().contains("config.json") && message().contains("`n_embd`"), "{}", message());
}
