//! Sampling on the device against sampling on the host with the same keys.

use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::{Backend, Flex, SampleOptions, sample};
use grove_models::{Gpt2, ModelError, Pretrained};
use grove_tasks::{
    GenerateOptions, generate,
    generation::{DecodeSession, Finish, Sampling, generate_with_cache},
};
use grove_tree::{AnyArray, Key, Path as TreePath, Tree};
use std::path::Path;

/// Options with the key of each of `rows` rows.
fn options(sampling: &Sampling, key: Key, rows: u32) -> SampleOptions {
    let keys = (0..rows).map(|row| key.fold_in(row).words()).collect();
    let &Sampling { temperature, top_k, top_p, min_p, repetition_penalty } = sampling;
    SampleOptions { repetition_penalty, temperature, top_k, top_p, min_p, keys }
}

/// Each sampling step alone, and all of them.
fn settings() -> Vec<Sampling> {
    let plain = Sampling::default;
    vec![
        Sampling::greedy(),
        Sampling { repetition_penalty: 1.7, ..Sampling::greedy() },
        plain(),
        Sampling { temperature: 0.7, ..plain() },
        Sampling { top_k: Some(1), ..plain() },
        Sampling { top_k: Some(40), ..plain() },
        Sampling { top_p: Some(0.9), ..plain() },
        Sampling { top_p: Some(1e-6), ..plain() },
        Sampling { min_p: Some(0.1), ..plain() },
        Sampling { min_p: Some(1.0), ..plain() },
        Sampling { temperature: 1.3, top_k: Some(50), top_p: Some(0.8), min_p: Some(0.02), repetition_penalty: 0.6 },
    ]
}

/// Samples on the device and on the host.
fn both<B: Backend>(
    logits: &[f32],
    dtype: DType,
    seen: &[Vec<u32>],
    sampling: &Sampling,
    key: Key,
    device: &B::Device,
) -> (Vec<Option<u32>>, Vec<u32>) {
    let (rows, classes) = (seen.len(), logits.len() / seen.len());
    let logits = Tensor::<B, 2>::from_data(TensorData::new(logits.to_vec(), [rows, classes]), device).cast(dtype);
    // Round the host's logits like the device's.
    let values: Vec<f32> = logits.to_data().convert::<f32>().to_vec().unwrap();
    let draw =
        |(i, (row, seen)): (usize, (&[f32], &Vec<u32>))| sampling.draw(&mut row.to_vec(), seen, key.fold_in(i as u32));
    let expected = values.chunks_exact(classes).zip(seen).enumerate().map(draw).collect();
    let mut occurred = vec![0i64; rows * classes];
    for (i, seen) in seen.iter().enumerate() {
        seen.iter().for_each(|&token| occurred[i * classes + token as usize] = 1);
    }
    let occurred = Tensor::<B, 2, Int>::from_data(TensorData::new(occurred, [rows, classes]), device);
    let occurred = (sampling.repetition_penalty != 1.0).then_some(occurred);
    let sampled = sample(logits, occurred, options(sampling, key, rows as u32)).expect("a backend that draws tokens");
    let found = sampled.pending.wait();
    let tokens: Vec<Option<u32>> = sampled.tokens.into_data().iter::<i64>().map(|token| Some(token as u32)).collect();
    assert_eq!(tokens, found, "on the device and on the host");
    if let Some(occurred) = sampled.occurred {
        let flags: Vec<i64> = occurred.into_data().iter().collect();
        for (i, (token, seen)) in found.iter().zip(seen).enumerate() {
            for class in 0..classes {
                let wanted = seen.contains(&(class as u32)) || *token == Some(class as u32);
                assert_eq!(flags[i * classes + class] != 0, wanted, "row {i}, token {class}");
            }
        }
    }
    (found, expected)
}

fn numbers(count: usize, seed: u64) -> Vec<f32> {
    Key::new(seed).normal_vec(count).into_iter().map(|x| 2.5 * x).collect()
}

fn same_tokens<B: Backend>(device: B::Device) {
    if !B::SAMPLES {
        let logits = Tensor::<B, 2>::zeros([1, 3], &device);
        return assert!(sample(logits, None, options(&Sampling::greedy(), Key::new(0), 1)).is_none());
    }
    for dtype in [DType::F32, DType::F16, DType::BF16].into_iter().filter(|dtype| B::computes_in(&device, *dtype)) {
        for (classes, rows) in [(1, 2), (2, 3), (255, 3), (257, 2), (3000, 2), (50_257, 1)] {
            let large = classes > 10_000;
            // In 16 bits many logits are equal.
            let mut logits = numbers(rows * classes, classes as u64);
            // An impossible token.
            if classes > 2 {
                logits[1] = f32::NEG_INFINITY;
            }
            let seen: Vec<Vec<u32>> =
                (0..rows).map(|row| (0..classes as u32).filter(|i| i % 5 == row as u32).collect()).collect();
            for (i, sampling) in settings().iter().enumerate() {
                // An emulated device takes longer for a larger vocabulary.
                for seed in 0..if large { 1 } else { 4 } {
                    let key = Key::new(100 * seed + i as u64);
                    let (found, expected) = both::<B>(&logits, dtype, &seen, sampling, key, &device);
                    let expected: Vec<Option<u32>> = expected.into_iter().map(Some).collect();
                    assert_eq!(found, expected, "{dtype:?}, {classes} tokens, {sampling:?}, seed {seed}");
                }
            }
        }
    }
}

/// Ties: greedy takes the first of the largest logits; top-k keeps all tokens equal to the last; top-p keeps the last
/// ones.
fn equal_logits<B: Backend>(device: B::Device) {
    if !B::SAMPLES {
        return;
    }
    let draw = |logits: &[f32], sampling: &Sampling, seed: u64| {
        let (found, expected) = both::<B>(logits, DType::F32, &[vec![]], sampling, Key::new(seed), &device);
        assert_eq!(found, [Some(expected[0])], "{sampling:?}, key {seed}");
        expected[0]
    };
    assert_eq!(draw(&[1.0, 3.0, 2.0, 3.0], &Sampling::greedy(), 0), 1);
    assert_eq!(draw(&[-0.0, 0.0], &Sampling::greedy(), 0), 0);
    assert_eq!(draw(&[f32::NEG_INFINITY, -2.0, -1.0], &Sampling::greedy(), 0), 2);
    let (zeros, steps) = ([0.0; 10], [0.0, 1.0, 2.0, 1.0, 2.0, 0.0, 1.0, -0.0, 1.0]);
    for seed in 0..12 {
        // Half of ten equally likely tokens: the last five.
        let kept = draw(&zeros, &Sampling { top_p: Some(0.45), ..Sampling::default() }, seed);
        assert!(kept >= 5, "{kept}");
        for logits in [&zeros[..], &steps[..]] {
            for top_p in [0.05, 0.33, 0.62, 0.95] {
                draw(logits, &Sampling { top_p: Some(top_p), ..Sampling::default() }, seed);
                draw(logits, &Sampling { top_k: Some(3), top_p: Some(top_p), ..Sampling::default() }, seed);
            }
            draw(logits, &Sampling { top_k: Some(7), ..Sampling::default() }, seed);
        }
    }
}

/// Rows with NaN or infinity, or without a possible token, are detected. Other rows are unaffected.
fn rows_without_numbers<B: Backend>(device: B::Device) {
    if !B::SAMPLES {
        return;
    }
    let (inf, classes) = (f32::INFINITY, 300);
    let mut logits = numbers(6 * classes, 5);
    logits[299] = f32::NAN;
    logits[classes + 7] = inf;
    logits[2 * classes..3 * classes].fill(-inf);
    logits[3 * classes..4 * classes - 1].fill(-inf);
    logits[4 * classes] = -inf;
    let logits = Tensor::<B, 2>::from_data(TensorData::new(logits, [6, classes]), &device);
    for sampling in settings() {
        let occurred = Tensor::<B, 2, Int>::zeros([6, classes], &device);
        let sampled = sample(logits.clone(), Some(occurred), options(&sampling, Key::new(1), 6)).expect("tokens");
        let found = sampled.pending.wait();
        assert_eq!(found[..4], [None, None, None, Some(299)], "{sampling:?}");
        assert!(found[4..].iter().all(|token| token.is_some_and(|token| token < 300)), "{sampling:?}: {found:?}");
        let tokens: Vec<i64> = sampled.tokens.into_data().iter().collect();
        assert_eq!(tokens[..4], [0, 0, 0, 299], "{sampling:?}");
    }
}

/// Frequencies of many samples against the probabilities.
fn frequencies<B: Backend>(device: B::Device) {
    if !B::SAMPLES {
        return;
    }
    let shares = [0.4f32, 0.05, 0.3, 0.2, 0.05];
    let draws = 1500;
    let logits: Vec<f32> = shares.iter().map(|p| p.ln() + 3.0).collect::<Vec<_>>().repeat(draws);
    let logits = Tensor::<B, 2>::from_data(TensorData::new(logits, [draws, 5]), &device);
    let sampling = Sampling::default();
    let found = sample(logits, None, options(&sampling, Key::new(9), draws as u32)).expect("tokens").pending.wait();
    let count = |class: u32| found.iter().filter(|token| **token == Some(class)).count() as f64;
    let chi_square: f64 = shares
        .iter()
        .enumerate()
        .map(|(class, &share)| {
            let expected = f64::from(share) * draws as f64;
            (count(class as u32) - expected).powi(2) / expected
        })
        .sum();
    // 0.999 quantile of the chi-square distribution with four degrees of freedom.
    assert!(chi_square < 18.47, "{chi_square}");
}

fn tiny<B: Backend>(device: &B::Device) -> Gpt2<B> {
    Gpt2::from_path(Path::new("../models/tests/fixtures/gpt2/tiny_a"), device, None).unwrap().0
}

/// Whole sequences, in rows that end at different steps.
fn texts<B: Backend>(device: B::Device) {
    let (host, model) = (tiny::<Flex>(&Default::default()), tiny::<B>(&device));
    let prompts = [vec![1, 2, 3, 4, 5], vec![40], vec![7, 8]];
    for (i, sampling) in settings().into_iter().enumerate() {
        let options = GenerateOptions {
            max_new_tokens: 9,
            sampling,
            ignore_eos: true,
            key: Key::new(i as u64),
            ..GenerateOptions::default()
        };
        let texts = generate(&host, &prompts, &options, |_, _| true).unwrap();
        let mut watched = vec![vec![]; 3];
        let found = generate(&model, &prompts, &options, |row, token| {
            watched[row].push(token);
            true
        });
        assert_eq!(found.unwrap(), texts, "{:?}", options.sampling);
        assert!(watched.iter().zip(&texts).all(|(watched, text)| *watched == text.ids));

        // A stop token that ends the second row, and a callback that ends the first.
        let stop_tokens = vec![texts[1].ids[4]];
        let options = GenerateOptions { stop_tokens, ..options };
        let on_token = || {
            let mut seen = 0;
            move |row: usize, _: u32| {
                seen += usize::from(row == 0);
                row > 0 || seen < 3
            }
        };
        let texts = generate(&host, &prompts, &options, on_token()).unwrap();
        assert_eq!(texts[1].finish, Finish::Stop);
        assert_eq!(generate(&model, &prompts, &options, on_token()).unwrap(), texts, "{:?}", options.sampling);

        // Turns of a conversation.
        let first = |model: &Gpt2<Flex>| {
            generate_with_cache(model, DecodeSession::new(model, 0), &prompts[0], &options, |_| true)
        };
        let (expected, _) = first(&host).unwrap();
        let (found, session) =
            generate_with_cache(&model, DecodeSession::new(&model, 0), &prompts[0], &options, |_| true).unwrap();
        assert_eq!(found, expected, "{:?}", options.sampling);
        let next = [prompts[0].clone(), found.ids, vec![9, 10]].concat();
        let (expected, _) =
            generate_with_cache(&host, DecodeSession::new(&host, 0), &next, &options, |_| true).unwrap();
        let (found, _) = generate_with_cache(&model, session, &next, &options, |_| true).unwrap();
        assert_eq!(found, expected, "{:?}", options.sampling);
    }
    // No new tokens, no rows, and sequences that fill the context.
    let options = |max_new_tokens| GenerateOptions { max_new_tokens, ignore_eos: true, ..GenerateOptions::default() };
    for (prompts, wanted) in [(&prompts[..], 0), (&prompts[..0], 3), (&prompts[..], 1), (&prompts[..2], 100)] {
        let texts = generate(&host, prompts, &options(wanted), |_, _| true).unwrap();
        assert_eq!(generate(&model, prompts, &options(wanted), |_, _| true).unwrap(), texts);
    }
    // A temperature so low that the host samples.
    let cold = GenerateOptions { sampling: Sampling { temperature: 1e-6, ..Sampling::default() }, ..options(4) };
    let texts = generate(&host, &prompts, &cold, |_, _| true).unwrap();
    assert_eq!(generate(&model, &prompts, &cold, |_, _| true).unwrap(), texts);
}

fn damaged_weights_are_named<B: Backend>(device: B::Device) {
    let name = "h.1.mlp.c_fc.weight";
    for number in [f32::NAN, f32::INFINITY] {
        let model = tiny::<B>(&device).map(&mut TreePath::root(), &mut |path, leaf| {
            if path.as_str() != name {
                return leaf;
            }
            let shape = leaf.shape().to_vec();
            AnyArray::from_data(TensorData::full(shape, number), &device)
        });
        for sampling in settings() {
            let options = GenerateOptions { sampling, ..GenerateOptions::default() };
            let named = |error: ModelError| {
                assert!(
                    matches!(&error, ModelError::NotFinite { tensor: Some(found), .. } if found == name),
                    "{error}"
                );
            };
            named(generate(&model, &[vec![5, 17], vec![40]], &options, |_, _| true).unwrap_err());
            named(
                generate_with_cache(&model, DecodeSession::new(&model, 0), &[5, 17], &options, |_| true)
                    .map(|_| ())
                    .unwrap_err(),
            );
        }
    }
}

on_each_backend!(same_tokens, equal_logits, rows_without_numbers, frequencies, texts, damaged_weights_are_named,);
