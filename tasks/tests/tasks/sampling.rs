//! Sampling: the logits after each step against transformers' processors, and the sampled tokens. Fixture:
//! tools/fixtures/gpt2.py.

use grove_models::ModelError;
use grove_tasks::generation::Sampling;
use grove_tree::Key;
use serde::Deserialize;
use std::{collections::HashMap, path::Path};

#[derive(Deserialize)]
struct Fixture {
    rows: HashMap<String, Rows>,
    cases: Vec<Case>,
}

/// Logits (null for minus infinity), and the tokens so far.
#[derive(Deserialize)]
struct Rows {
    logits: Vec<Vec<Option<f32>>>,
    input_ids: Vec<Vec<u32>>,
}

#[derive(Deserialize)]
struct Case {
    rows: String,
    settings: Settings,
    processed: Vec<Vec<Option<f32>>>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Settings {
    temperature: Option<f32>,
    top_k: Option<usize>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repetition_penalty: Option<f32>,
}

impl Settings {
    fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
        }
    }
}

fn fixture() -> Fixture {
    let file = Path::new("../models/tests/fixtures/gpt2/sampling.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

fn row(logits: &[Option<f32>]) -> Vec<f32> {
    logits.iter().map(|x| x.unwrap_or(f32::NEG_INFINITY)).collect()
}

#[test]
fn logits_are_processed_as_by_transformers() {
    let Fixture { rows, cases } = fixture();
    assert_eq!(cases.len(), 26);
    let mut worst = 0.0f32;
    for Case { rows: name, settings, processed } in &cases {
        let Rows { logits, input_ids } = &rows[name];
        let sampling = settings.sampling();
        sampling.validate().unwrap();
        for ((logits, seen), expected) in logits.iter().zip(input_ids).zip(processed) {
            let (mut found, expected) = (row(logits), row(expected));
            sampling.process(&mut found, seen);
            for (i, (a, b)) in found.iter().zip(&expected).enumerate() {
                let apart = if a == b { 0.0 } else { (a - b).abs() };
                worst = worst.max(apart);
                assert!(apart <= 1e-5, "{name} {settings:?}: token {i} has {a}, not {b}");
            }
        }
    }
    println!("{} cases: apart by {worst:.1e}", cases.len());
}

#[test]
fn only_what_is_left_is_drawn() {
    let Fixture { rows, cases } = fixture();
    for Case { rows: name, settings, processed } in cases {
        let Rows { logits, input_ids } = &rows[&name];
        for ((logits, seen), processed) in logits.iter().zip(input_ids).zip(&processed) {
            for i in 0..50 {
                let token = settings.sampling().draw(&mut row(logits), seen, Key::new(i));
                assert!(processed[token as usize].is_some(), "{name} {settings:?}: {token} was drawn");
            }
        }
    }
}

#[test]
fn greedy_takes_the_first_of_equal_maxima() {
    let greedy = |logits: &[f32]| Sampling::greedy().draw(&mut logits.to_vec(), &[], Key::new(0));
    assert_eq!(greedy(&[1.0, 3.0, 2.0, 3.0]), 1);
    assert_eq!(greedy(&[5.0, 5.0]), 0);
    assert_eq!(greedy(&[f32::NEG_INFINITY, -2.0, -1.0]), 2);
    assert_eq!(greedy(&[-0.0, 0.0]), 0);
    assert_eq!(greedy(&[7.0]), 0);

    let any_key: Vec<u32> = (0..20).map(|i| Sampling::greedy().draw(&mut [0.0, 0.1, 0.05], &[], Key::new(i))).collect();
    assert_eq!(any_key, [1; 20]);

    // Greedy decoding applies the repetition penalty. Top-k and min-p cannot change the most likely token.
    let penalised = Sampling { repetition_penalty: 2.0, top_k: Some(1), min_p: Some(1.0), ..Sampling::greedy() };
    assert_eq!(penalised.draw(&mut [3.0, 2.0, -1.0], &[0, 0], Key::new(0)), 1);
    assert_eq!(penalised.draw(&mut [-3.0, -2.0, -2.5], &[1], Key::new(0)), 2);
    assert_eq!(penalised.draw(&mut [1.0, 2.0], &[9], Key::new(0)), 1, "a token outside is not penalised");
}

#[test]
fn options_out_of_range_are_named() {
    let default = Sampling::default;
    let good = [
        default(),
        Sampling::greedy(),
        Sampling { top_k: Some(1), top_p: Some(1.0), min_p: Some(0.0), ..default() },
        Sampling { min_p: Some(1.0), repetition_penalty: 0.1, temperature: 1e-3, ..default() },
    ];
    for sampling in good {
        sampling.validate().unwrap();
    }
    let mut bad = vec![("top-k", "0", Sampling { top_k: Some(0), ..default() })];
    for (value, shown) in [(-0.5, "-0.5"), (f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        bad.push(("temperature", shown, Sampling { temperature: value, ..default() }));
        bad.push(("repetition penalty", shown, Sampling { repetition_penalty: value, ..default() }));
        bad.push(("top-p", shown, Sampling { top_p: Some(value), ..default() }));
        bad.push(("min-p", shown, Sampling { min_p: Some(value), ..default() }));
    }
    bad.push(("repetition penalty", "0", Sampling { repetition_penalty: 0.0, ..default() }));
    bad.push(("top-p", "0", Sampling { top_p: Some(0.0), ..default() }));
    bad.push(("top-p", "1.5", Sampling { top_p: Some(1.5), ..default() }));
    bad.push(("min-p", "1.5", Sampling { min_p: Some(1.5), ..default() }));
    for (name, shown, sampling) in bad {
        let error = sampling.validate().unwrap_err();
        let message = error.to_string();
        assert!(message.starts_with(&format!("{name} is {shown}; it must be ")), "{message}");
        assert!(matches!(error, ModelError::Option { option, value, .. } if option == name && value == shown));
    }
}

#[test]
fn draws_follow_the_key() {
    let logits = row(&fixture().rows["spread"].logits[0]);
    let draws = |seed| -> Vec<u32> {
        let key = Key::new(seed);
        (0..40).map(|i| Sampling::default().draw(&mut logits.clone(), &[], key.fold_in(i))).collect()
    };
    assert_eq!(draws(1), draws(1));
    assert_ne!(draws(1), draws(2));
    assert!(draws(1).iter().any(|&token| token != draws(1)[0]), "draws of one key differ");
}

/// Pearson's chi-square test: the sum of (observed - expected)^2 / expected over `n` classes is about n - 1, with a
/// standard deviation of sqrt(2 (n - 1)).
#[test]
fn frequencies_match_the_softmax() {
    const DRAWS: u32 = 20_000;
    let logits = row(&fixture().rows["spread"].logits[0]);
    let settings = [
        Sampling::default(),
        Sampling { temperature: 0.7, top_k: Some(8), ..Sampling::default() },
        Sampling { temperature: 1.8, top_p: Some(0.9), repetition_penalty: 1.3, ..Sampling::default() },
        Sampling { min_p: Some(0.05), ..Sampling::default() },
    ];
    for (seed, sampling) in settings.iter().enumerate() {
        let seen = [8, 13];
        let mut processed = logits.clone();
        sampling.process(&mut processed, &seen);
        let weights: Vec<f64> = processed.iter().map(|&x| f64::from(x).exp()).collect();
        let total: f64 = weights.iter().sum();

        let mut counts = vec![0.0; logits.len()];
        let key = Key::new(seed as u64);
        for i in 0..DRAWS {
            counts[sampling.draw(&mut logits.clone(), &seen, key.fold_in(i)) as usize] += 1.0;
        }
        // Rare classes are merged, as the test requires.
        let (mut statistic, mut classes, mut rare) = (0.0, 0, (0.0, 0.0));
        let mut class = |observed: f64, expected: f64| {
            statistic += (observed - expected).powi(2) / expected;
            classes += 1;
        };
        for (observed, weight) in counts.into_iter().zip(weights) {
            let expected = weight / total * f64::from(DRAWS);
            match expected {
                0.0 => assert_eq!(observed, 0.0, "an impossible token was drawn"),
                ..10.0 => rare = (rare.0 + observed, rare.1 + expected),
                _ => class(observed, expected),
            }
        }
        if rare.1 > 0.0 {
            class(rare.0, rare.1);
        }
        let degrees = f64::from(classes - 1);
        println!("{sampling:?}: {statistic:.1} for {degrees} degrees of freedom");
        assert!(classes > 2 && (statistic - degrees).abs() < 4.0 * (2.0 * degrees).sqrt(), "{sampling:?}: {statistic}");
    }
}
