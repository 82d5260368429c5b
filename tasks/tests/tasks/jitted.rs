//! Generation with a jitted decoding step.

use std::path::Path;

use grove_backend::{Backend, Candle, Flex};
use grove_models::{Gpt2, Gpt2Config, GptNeo, Llama, Pretrained, RnnLm, TraceableLm};
use grove_tasks::{GenerateOptions, JitGenerate, generate, generation::Sampling};
use grove_tree::Key;

fn load<B: Backend, M: Pretrained<B>>(path: &str) -> M {
    let folder = Path::new("../models/tests/fixtures").join(path);
    M::from_path(folder, &Default::default(), None).unwrap().0
}

/// Jitted and eager continuations are the same, for prompts of one or several lengths, greedy and sampled.
fn same_texts<B: Backend, M: TraceableLm<B>>(name: &str, model: &M) {
    let jitted = model.jitted();
    let sampled = Sampling { temperature: 0.9, top_k: Some(9), repetition_penalty: 1.2, ..Sampling::default() };
    let mut last = vec![];
    for sampling in [Sampling::greedy(), sampled] {
        for prompts in [vec![vec![1, 5, 3]], vec![vec![2, 7, 4, 4, 1], vec![3], vec![9, 8, 7]]] {
            let options = GenerateOptions {
                max_new_tokens: 9,
                sampling: sampling.clone(),
                ignore_eos: true,
                key: Key::new(3),
                ..GenerateOptions::default()
            };
            let expected = generate(model, &prompts, &options, |_, _| true).unwrap();
            let mut seen = vec![vec![]; prompts.len()];
            let found = jitted.generate_with(&prompts, &options, |row, token| {
                seen[row].push(token);
                true
            });
            let found = found.unwrap();
            assert_eq!(found, expected, "{name}, {} rows", prompts.len());
            assert_eq!(seen, found.iter().map(|row| row.ids.clone()).collect::<Vec<_>>());
            last = found;
        }
    }
    assert!(last.iter().all(|row| row.ids.len() == 9), "{name}: {last:?}");
    // One graph for one row, and one for three rows with padding.
    assert_eq!(jitted.graphs().len(), 2, "{name}");
}

/// Samples of one prompt, which is processed once, are the rows of a batch with another prompt, which is not.
fn same_samples<B: Backend, M: TraceableLm<B>>(name: &str, model: &M) {
    let prompt: Vec<u32> = (0..20).map(|i| i * i % 40).collect();
    let options =
        GenerateOptions { max_new_tokens: 9, ignore_eos: true, key: Key::new(3), ..GenerateOptions::default() };
    let other = [prompt[1..].to_vec(), vec![7]].concat();
    let rows = [vec![prompt.clone(); 3], vec![other]].concat();
    let expected = generate(model, &rows, &options, |_, _| true).unwrap();
    let samples = generate(model, &rows[..3], &options, |_, _| true).unwrap();
    assert_eq!(samples, expected[..3], "{name}");
    assert_eq!(model.jitted().generate(&rows[..3], &options).unwrap(), samples, "{name}");
    assert!(samples[0] != samples[1] && samples[1] != samples[2], "{name}: {samples:?}");
}

fn every_decoder<B: Backend>() {
    each("gpt2", &load::<B, Gpt2<B>>("gpt2/tiny_a"));
    each("gpt_neo", &load::<B, GptNeo<B>>("gpt_neo/tiny"));
    for name in ["llama/gqa", "llama/mistral", "llama/rope_llama3", "llama/rope_dynamic"] {
        each(name, &load::<B, Llama<B>>(name));
    }
    each("rnn", &load::<B, RnnLm<B>>("rnn/lm_lstm_tied/model.pt"));
}

fn each<B: Backend, M: TraceableLm<B>>(name: &str, model: &M) {
    if name != "llama/rope_dynamic" {
        same_texts(name, model);
    }
    same_samples(name, model);
}

#[test]
fn every_decoder_flex() {
    every_decoder::<Flex>();
}

#[test]
fn every_decoder_candle() {
    every_decoder::<Candle>();
}

/// The cache doubles at 64 and at 128 positions. The sequence ends at the model's context length.
#[test]
fn a_long_text() {
    let config =
        Gpt2Config { n_embd: 16, n_layer: 2, n_head: 2, vocab_size: 50, n_positions: 150, ..Gpt2Config::default() };
    let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
    let options = GenerateOptions { max_new_tokens: 1000, ignore_eos: true, ..GenerateOptions::default() };
    let (jitted, prompt) = (model.jitted(), vec![(0..50).collect::<Vec<u32>>()]);
    let found = jitted.generate(&prompt, &options).unwrap();
    assert_eq!(found, generate(&model, &prompt, &options, |_, _| true).unwrap());
    assert_eq!((found[0].ids.len(), jitted.graphs().len()), (101, 3));
}

#[test]
fn errors_match_generate() {
    let model = load::<Flex, Gpt2<Flex>>("gpt2/tiny_a");
    let options = GenerateOptions::default();
    for prompt in [vec![], vec![1_000_000], vec![0; 10_000]] {
        let expected = generate(&model, std::slice::from_ref(&prompt), &options, |_, _| true).unwrap_err();
        let found = model.jitted().generate(&[prompt], &options).unwrap_err();
        assert_eq!(found.to_string(), expected.to_string());
    }
    assert_eq!(model.jitted().generate(&[], &options).unwrap(), []);
}
