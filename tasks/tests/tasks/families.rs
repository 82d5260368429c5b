//! Greedy continuations of every family of decoders against the reference libraries: of one prompt, of several padded
//! prompts, with a cache, after truncation, and with a draft. Fixtures: tools/fixtures/{gpt2,gpt_neo,llama,rnn_models}.py.

use burn::tensor::DType;
use grove_backend::{Backend, Flex};
use grove_models::{AutoModel, CausalLm, EndTokens, Gpt2, GptNeo, Llama, ModelError, Pretrained, RnnLm};
use grove_tasks::{
    AutoGenerate, Generate, GenerateOptions, generate,
    generation::{DecodeSession, Sampling, generate_with_cache, generate_with_draft},
};
use grove_text::Tokenizer;
use serde::Deserialize;
use std::path::{Path, PathBuf};

use crate::reference::{LLAMAS, Reference};

const FIXTURES: &str = "../models/tests/fixtures";

fn greedy(max_new_tokens: usize) -> GenerateOptions {
    let sampling = Sampling::greedy();
    GenerateOptions { max_new_tokens, sampling, ignore_eos: true, ..GenerateOptions::default() }
}

fn continuations<B: Backend, M: CausalLm<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
) -> Vec<Vec<u32>> {
    let generated = generate(model, prompts, options, |_, _| true).unwrap();
    generated.into_iter().map(|row| row.ids).collect()
}

/// Checks greedy continuations in all decoding modes.
fn check_greedy<B: Backend, M: CausalLm<B>>(reference: &Reference, model: &M) {
    let (prompt, expected) = (reference.ids("greedy_prompt_ids"), reference.ids("greedy_ids"));
    let alone = |prompt: &[u32], expected: &[u32]| {
        let options = greedy(expected.len());
        let found = generate(model, &[prompt.to_vec()], &options, |_, _| true).unwrap();
        assert_eq!(found[0].ids, expected, "{}: alone", reference.name);
        for lookahead in [1, 3, 16] {
            let (found, drafted) = generate_with_draft(model, model, prompt, lookahead, &options, |_| true).unwrap();
            assert_eq!(found.ids, expected, "{}: with itself as a draft", reference.name);
            assert!(drafted.accepted * 10 >= drafted.proposed * 9, "{drafted:?}: it knows what it would say");
        }
    };
    alone(&prompt, &expected);
    // Turns of a conversation, each continuing the previous one.
    let session = DecodeSession::new(model, 0);
    let half = expected.len() / 2;
    let (first, session) = generate_with_cache(model, session, &prompt, &greedy(half), |_| true).unwrap();
    assert_eq!(first.ids, expected[..half], "{}: first turn", reference.name);
    let so_far = [prompt.clone(), first.ids].concat();
    let (second, session) =
        generate_with_cache(model, session, &so_far, &greedy(expected.len() - half), |_| true).unwrap();
    assert_eq!(second.ids, expected[half..], "{}: second turn", reference.name);
    let (again, _) = generate_with_cache(model, session, &prompt, &greedy(expected.len()), |_| true).unwrap();
    assert_eq!(again.ids, expected, "{}: from the beginning", reference.name);

    let lengths = reference.ids("padded.lengths");
    let all = reference.ids("padded.input_ids");
    let width = all.len() / lengths.len();
    let row = |(i, &length): (usize, &u32)| all[(i + 1) * width - length as usize..(i + 1) * width].to_vec();
    let prompts: Vec<Vec<u32>> = lengths.iter().enumerate().map(row).collect();
    let expected: Vec<Vec<u32>> = (0..prompts.len()).map(|i| reference.ids(&format!("padded.greedy_{i}"))).collect();
    let found = generate(model, &prompts, &greedy(expected[0].len()), |_, _| true).unwrap();
    let found: Vec<Vec<u32>> = found.into_iter().map(|row| row.ids).collect();
    assert_eq!(found, expected, "{}: all at once", reference.name);
    for (prompt, expected) in prompts.iter().zip(&expected) {
        alone(prompt, expected);
    }
}

fn gpt2<B: Backend>(name: &str, device: &B::Device) -> Gpt2<B> {
    Gpt2::from_path(Path::new(FIXTURES).join("gpt2").join(name), device, None).unwrap().0
}

fn llama<B: Backend>(name: &str, device: &B::Device) -> (Reference, Llama<B>) {
    let reference = Reference::of("llama", name);
    let (model, _) = Llama::from_path(&reference.directory, device, Some(DType::F32)).unwrap();
    (reference, model)
}

fn every_gpt2<B: Backend>(device: B::Device) {
    for name in ["tiny_a", "tiny_b"] {
        check_greedy(&Reference::of("gpt2", name), &gpt2::<B>(name, &device));
    }
}

fn every_gpt_neo<B: Backend>(device: B::Device) {
    for name in ["tiny", "global_only"] {
        let reference = Reference::of("gpt_neo", name);
        check_greedy(&reference, &GptNeo::<B>::from_path(&reference.directory, &device, None).unwrap().0);
    }
}

fn every_llama<B: Backend>(device: B::Device) {
    for name in LLAMAS {
        let (reference, model) = llama::<B>(name, &device);
        check_greedy(&reference, &model);
    }
}

fn every_rnn<B: Backend>(device: B::Device) {
    for name in ["lm_lstm_tied", "lm_gru", "lm_rnn_relu"] {
        let reference = Reference::of("rnn", name);
        let [torch, safetensors] = ["model.pt", "model.safetensors"].map(|file| reference.directory.join(file));
        let path = if torch.exists() { torch } else { safetensors };
        let (model, _) = RnnLm::<B>::from_path(path, &device, None).unwrap();
        let prompts: Vec<Vec<u32>> = (0..3).map(|i| reference.ids(&format!("prompt.{i}"))).collect();
        let expected: Vec<Vec<u32>> = (0..3).map(|i| reference.ids(&format!("greedy.{i}"))).collect();
        let steps = expected[0].len();
        assert_eq!(continuations(&model, &prompts, &greedy(steps)), expected, "{name}: all at once");
        for (prompt, expected) in prompts.iter().zip(&expected) {
            assert_eq!(
                &continuations(&model, std::slice::from_ref(prompt), &greedy(steps))[0],
                expected,
                "{name}: alone"
            );
        }
    }
}

on_each_backend!(every_gpt2, every_gpt_neo, every_llama, every_rnn);

#[test]
fn generates_like_the_family() {
    let (path, device) = (Path::new(FIXTURES).join("gpt2/tiny_a"), Default::default());
    let options = GenerateOptions { max_new_tokens: 8, sampling: Sampling::greedy(), ..GenerateOptions::default() };
    let prompts = [vec![5, 17], vec![40]];
    let found = AutoModel::<Flex>::from_path(&path, &device, None).unwrap().generate(&prompts, &options);
    let (model, _) = Gpt2::<Flex>::from_path(&path, &device, None).unwrap();
    assert_eq!(found.unwrap(), model.generate(&prompts, &options).unwrap());

    let bert = AutoModel::<Flex>::from_path(Path::new(FIXTURES).join("bert/bert_model"), &device, None).unwrap();
    let error = bert.generate(&prompts, &options).unwrap_err().to_string();
    assert!(error.contains("kind Bert generates no text"), "{error}");
}

#[test]
fn several_tokens_may_end_a_text() {
    let (reference, model) = llama::<Flex>("gqa", &Default::default());
    assert!(matches!(model.config.eos_token_id, EndTokens::Any(_)));
    let options = GenerateOptions { ignore_eos: false, ..greedy(40) };
    let found = generate(&model, &[reference.ids("eos.prompt_ids")], &options, |_, _| true).unwrap();
    let mut expected = reference.ids("eos.ids");
    let ends = model.config.eos_token_id.to_vec();
    assert!(expected.last().is_some_and(|last| ends.contains(last)), "the reference ended there");
    expected.pop();
    assert_eq!(found[0].ids, expected);
}

#[test]
fn impossible_prompts_are_refused() {
    let model = gpt2::<Flex>("tiny_a", &Default::default());
    let error = |prompt: Vec<u32>| generate(&model, &[prompt], &greedy(1), |_, _| true).unwrap_err();
    assert!(matches!(error(vec![]), ModelError::EmptyPrompt));
    assert!(matches!(error(vec![67]), ModelError::TokenOutside { id: 67, vocab_size: 67 }));
    assert!(matches!(error(vec![1; 38]), ModelError::PromptTooLong { len: 38, context: 37 }));
    assert_eq!(continuations(&model, &[vec![1; 37]], &greedy(5))[0].len(), 1, "one token follows a full context");
}

#[test]
fn sampling_follows_the_key_and_the_stop_conditions() {
    let model = gpt2::<Flex>("tiny_a", &Default::default());
    let options = |seed| GenerateOptions {
        key: grove_tree::Key::new(seed),
        ignore_eos: true,
        max_new_tokens: 20,
        ..GenerateOptions::default()
    };
    let prompts = [vec![1, 2, 3], vec![1, 2, 3]];
    let first = continuations(&model, &prompts, &options(1));
    assert_eq!(first, continuations(&model, &prompts, &options(1)));
    assert_ne!(first[0], first[1], "samples differ");
    assert_ne!(first, continuations(&model, &prompts, &options(2)));
    let candle = gpt2::<grove_backend::Candle>("tiny_a", &Default::default());
    assert_eq!(first, continuations(&candle, &prompts, &options(1)), "the same text on every CPU backend");

    let stop = first[0][4];
    let ends = GenerateOptions { stop_tokens: vec![stop], ..options(1) };
    let place = first[0].iter().position(|&id| id == stop).unwrap();
    assert_eq!(continuations(&model, &prompts, &ends)[0], first[0][..place]);
}

/// Reference values of a shipped model. Fixture: tools/fixtures/shipped.py.
#[derive(Deserialize)]
struct Shipped {
    prompt: String,
    prompt_ids: Vec<u32>,
    greedy: Vec<u32>,
}

fn check_continuation<M: CausalLm<Flex>>(kind: &str, model: &M) {
    let text = std::fs::read(Path::new(FIXTURES).join(kind).join("shipped.json")).expect("a fixture");
    let reference: Shipped = serde_json::from_slice(&text).expect("JSON");
    let tokenizer = Tokenizer::from_path(assets(kind)).expect("a tokenizer");
    assert_eq!(tokenizer.encode(&reference.prompt).expect("tokens"), reference.prompt_ids);
    let options = GenerateOptions { ignore_eos: false, ..greedy(reference.greedy.len()) };
    let written = generate(model, &[reference.prompt_ids], &options, |_, _| true).expect("text");
    assert_eq!(written[0].ids, reference.greedy);
}

fn assets(kind: &str) -> PathBuf {
    Path::new("../models/assets").join(format!("{kind}-austen"))
}

#[test]
fn shipped_models_continue_as_in_transformers() {
    check_continuation("gpt2", &Gpt2::<Flex>::from_path(assets("gpt2"), &Default::default(), None).unwrap().0);
    check_continuation("llama", &Llama::<Flex>::from_path(assets("llama"), &Default::default(), None).unwrap().0);
}
