//! Generation with 16-bit caches of keys and values: every mode gives the same text, and the logits are those of an exact
//! cache up to rounding.

use burn::tensor::{DType, FloatDType, Tensor};
use grove_backend::{Backend, Candle, Flex, ops::to_dtype};
use grove_models::{CausalLm, DecodeCache, Gpt2, GptNeo, Llama, Pretrained, RnnLm, TraceableLm};
use grove_tasks::{
    GenerateOptions, JitGenerate, generate,
    generation::{DecodeSession, Sampling, generate_with_cache, generate_with_draft},
};
use std::path::Path;

fn load<B: Backend, M: Pretrained<B>>(path: &str) -> M {
    M::from_path(Path::new("../models/tests/fixtures").join(path), &Default::default(), None).unwrap().0
}

fn every_mode<B: Backend, M: TraceableLm<B>>(name: &str, model: &M, dtype: FloatDType) {
    let prompts: Vec<Vec<u32>> = vec![vec![2, 7, 4, 4, 1], vec![3], vec![9, 8, 7]];
    let options = GenerateOptions {
        max_new_tokens: 12,
        sampling: Sampling::greedy(),
        ignore_eos: true,
        cache_dtype: Some(dtype),
        ..GenerateOptions::default()
    };
    let alone =
        |prompt: &Vec<u32>| generate(model, std::slice::from_ref(prompt), &options, |_, _| true).unwrap().remove(0);
    let expected: Vec<_> = prompts.iter().map(alone).collect();
    let batched = GenerateOptions { batch_size: Some(2), ..options.clone() };
    for options in [&options, &batched] {
        assert_eq!(generate(model, &prompts, options, |_, _| true).unwrap(), expected, "{name} {dtype:?}");
        assert_eq!(model.jitted().generate(&prompts, options).unwrap(), expected, "{name} {dtype:?}, jitted");
    }
    let half = GenerateOptions { max_new_tokens: 6, ..options.clone() };
    let (first, session) =
        generate_with_cache(model, DecodeSession::new(model, 0), &prompts[0], &half, |_| true).unwrap();
    let so_far = [prompts[0].clone(), first.ids.clone()].concat();
    let (second, _) = generate_with_cache(model, session, &so_far, &half, |_| true).unwrap();
    assert_eq!([first.ids, second.ids].concat(), expected[0].ids, "{name} {dtype:?}, in turns");
    let (drafted, _) = generate_with_draft(model, model, &prompts[0], 3, &options, |_| true).unwrap();
    assert_eq!(drafted.ids, expected[0].ids, "{name} {dtype:?}, with a draft");
}

/// Logits after a prompt and one more token, `[vocab_size]`, in f32.
fn logits<B: Backend, M: CausalLm<B>>(model: &M, dtype: Option<FloatDType>) -> Vec<f32> {
    let device = model.device();
    let cache = model.new_cache(8).with_dtype(dtype);
    let (_, cache) = model.decode(Tensor::from_ints([[2, 7, 4, 4, 1]], &device), &[], cache);
    let (logits, _) = model.decode(Tensor::from_ints([[3]], &device), &[], cache);
    to_dtype(logits, DType::F32).into_data().to_vec().unwrap()
}

/// The logits differ from those of an exact cache by some units in the last place of the dtype, but do differ.
fn rounded<B: Backend, M: CausalLm<B>>(name: &str, model: &M) {
    let exact = logits(model, None);
    let largest = exact.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
    for (dtype, ulp) in [(FloatDType::F16, 2f32.powi(-10)), (FloatDType::BF16, 2f32.powi(-7))] {
        let found = logits(model, Some(dtype));
        let apart = exact.iter().zip(&found).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(apart > 0.0 && apart < 4.0 * ulp * largest, "{name} {dtype:?}: apart by {apart} of {largest}");
    }
    assert_eq!(logits(model, Some(FloatDType::F32)), exact, "{name}");
}

fn each<B: Backend, M: TraceableLm<B>>(name: &str, model: &M) {
    rounded(name, model);
    for dtype in [FloatDType::F16, FloatDType::BF16] {
        if B::computes_in(&model.device(), dtype.into()) {
            every_mode(name, model, dtype);
        }
    }
}

fn every_family<B: Backend>() {
    each("gpt2", &load::<B, Gpt2<B>>("gpt2/tiny_a"));
    each("gpt_neo", &load::<B, GptNeo<B>>("gpt_neo/tiny"));
    for name in ["llama/gqa", "llama/mistral"] {
        each(name, &load::<B, Llama<B>>(name));
    }
    // Has no keys and values.
    let rnn = load::<B, RnnLm<B>>("rnn/lm_lstm_tied/model.pt");
    assert_eq!(logits(&rnn, Some(FloatDType::BF16)), logits(&rnn, None));
}

#[test]
fn every_family_flex() {
    every_family::<Flex>();
}

#[test]
fn every_family_candle() {
    every_family::<Candle>();
}

#[test]
fn a_cache_takes_half_the_memory() {
    let model = load::<Flex, Llama<Flex>>("llama/gqa");
    let bytes = |dtype| model.cache_bytes(1000, dtype).unwrap();
    assert_eq!(bytes(None), bytes(Some(FloatDType::F32)));
    assert_eq!(bytes(None), 2 * bytes(Some(FloatDType::F16)));
}

#[test]
fn a_dtype_in_which_the_device_does_not_compute_is_refused() {
    let model = load::<Candle, Gpt2<Candle>>("gpt2/tiny_a");
    let options = GenerateOptions { cache_dtype: Some(FloatDType::BF16), ..GenerateOptions::default() };
    let error = generate(&model, &[vec![1]], &options, |_, _| true).unwrap_err();
    assert_eq!(error.to_string(), "the cache's dtype is bf16; it must be one in which the device computes");
}
