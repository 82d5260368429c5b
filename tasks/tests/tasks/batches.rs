//! Prompts in batches that rows enter and leave. The texts are those of each prompt alone.

use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, Flex};
use grove_layers::KvCache;
use grove_models::{CausalLm, DecodeCache, Gpt2, GptNeo, Llama, ModelError, Pretrained, RnnLm};
use grove_tasks::{
    GenerateOptions, JitGenerate,
    generation::{Finish, Generated, Sampling, TokenRules, generate, generate_many},
};
use grove_tree::{Key, Tree};
use std::path::Path;

use crate::long_texts::{greedy, models_of_lengths};

/// Prompts of unequal lengths, shorter and longer than the models' windows. Two are equal.
fn prompts(vocab_size: usize) -> Vec<Vec<u32>> {
    let prompt = |length: usize| (0..length).map(|i| ((i * i * 7 + 3 * length + i) % vocab_size) as u32).collect();
    [3, 20, 1, 9, 30, 9, 14, 2, 25, 6, 17].map(prompt).to_vec()
}

fn load<B: Backend, M: Pretrained<B>>(name: &str, device: &B::Device) -> M {
    M::from_path(Path::new("../models/tests/fixtures").join(name), device, None).unwrap().0
}

/// Continues prompts. Every fourth row ends after six tokens by its callback.
fn continued<B: Backend, M: CausalLm<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    batch_size: Option<usize>,
) -> Vec<Generated> {
    let options = GenerateOptions { batch_size, ..options.clone() };
    let (mut seen, mut ended) = (vec![vec![]; prompts.len()], vec![None; prompts.len()]);
    let on_token = |row: usize, token| {
        seen[row].push(token);
        row % 4 != 2 || seen[row].len() < 6
    };
    let on_end = |row: usize, text: &Generated| assert_eq!(ended[row].replace(text.clone()), None, "{row} ends once");
    let found = generate_many(model, prompts, &options, on_token, on_end).unwrap();
    assert_eq!(seen, found.iter().map(|row| row.ids.clone()).collect::<Vec<_>>());
    assert_eq!(ended.into_iter().flatten().collect::<Vec<_>>(), found);
    found
}

/// Compares batches of several sizes with single prompts: greedy and sampled, with and without tokens that end a text.
fn same_alone<B: Backend, M: CausalLm<B>>(name: &str, model: &M, max_new_tokens: usize) {
    // An emulated device takes longer.
    let (count, max_new_tokens) = if B::SAMPLES { (5, max_new_tokens.min(14)) } else { (11, max_new_tokens) };
    let prompts = &prompts(model.vocab_size())[..count];
    let sampled = Sampling { temperature: 0.9, top_k: Some(20), repetition_penalty: 1.2, ..Sampling::default() };
    let penalised = Sampling { repetition_penalty: 1.5, ..Sampling::greedy() };
    for sampling in [Sampling::greedy(), penalised, sampled] {
        let options = GenerateOptions { sampling, key: Key::new(5), ..greedy(max_new_tokens) };
        let endless = continued(model, prompts, &options, Some(1));
        assert!(endless.iter().any(|row| row.finish == Finish::Callback));
        let stop_tokens = vec![endless[1].ids[4], endless[3].ids[8]];
        for options in [options.clone(), GenerateOptions { stop_tokens, ..options }] {
            let alone = continued(model, prompts, &options, Some(1));
            let stops = alone.iter().filter(|row| row.finish == Finish::Stop).count();
            assert_eq!(stops > 0, !options.stop_tokens.is_empty());
            for size in [Some(2), Some(3), Some(8), None] {
                let found = continued(model, prompts, &options, size);
                assert_eq!(found, alone, "{name}, batches of {size:?}, {:?}", options.sampling);
            }
            // The random numbers of a prompt depend on its index.
            let greedy = options.sampling.temperature == 0.0;
            for (i, prompt) in prompts.iter().enumerate().filter(|(i, _)| greedy && i % 4 != 2) {
                let found = generate(model, std::slice::from_ref(prompt), &options, |_, _| true).unwrap();
                assert_eq!(found[0], alone[i], "{name}, prompt {i}");
            }
        }
    }
}

fn every_family<B: Backend>(device: B::Device) {
    same_alone("gpt2", &load::<B, Gpt2<B>>("gpt2/tiny_a", &device), 40);
    same_alone("gpt_neo", &load::<B, GptNeo<B>>("gpt_neo/tiny", &device), 40);
    for name in ["gqa", "qwen3", "rope_llama3"] {
        same_alone(name, &load::<B, Llama<B>>(&format!("llama/{name}"), &device), 40);
    }
    // Beyond the memory of the window of 16 positions.
    same_alone("mistral", &load::<B, Llama<B>>("llama/mistral", &device), 130);
    same_alone("rnn", &load::<B, RnnLm<B>>("rnn/lm_lstm_tied/model.pt", &device), 40);
}

on_each_backend!(every_family);

/// The states of such a model depend on the length of the longest row.
#[test]
fn models_of_lengths_continue_each_prompt_alone() {
    for model in models_of_lengths() {
        let prompts = prompts(512);
        for options in [greedy(20), GenerateOptions { use_cache: false, ..greedy(20) }] {
            let alone =
                |prompt| generate(&model, std::slice::from_ref(prompt), &options, |_, _| true).unwrap().remove(0);
            let expected: Vec<Generated> = prompts.iter().map(alone).collect();
            for batch_size in [None, Some(4)] {
                let options = GenerateOptions { batch_size, ..options.clone() };
                assert_eq!(generate(&model, &prompts, &options, |_, _| true).unwrap(), expected);
            }
            // Samples have the same length.
            let samples = [prompts[1].clone(), prompts[1].clone(), prompts[1].clone()];
            let options = GenerateOptions { batch_size: Some(2), ..options };
            let found = generate(&model, &samples, &options, |_, _| true).unwrap();
            assert!(found.iter().all(|row| *row == expected[1]), "{found:?}");
        }
    }
}

/// A model whose cache cannot be joined.
#[derive(Tree, Clone, Debug)]
struct Unjoined<B: Backend> {
    model: Gpt2<B>,
}

#[derive(Tree, Clone, Debug)]
struct UnjoinedCache<B: Backend> {
    layers: Vec<KvCache<B>>,
}

impl<B: Backend> DecodeCache<B> for UnjoinedCache<B> {
    fn seen(&self) -> usize {
        self.layers.seen()
    }

    fn truncate(self, len: usize) -> Option<Self> {
        Some(Self { layers: self.layers.truncate(len)? })
    }
}

impl<B: Backend> CausalLm<B> for Unjoined<B> {
    type Cache = UnjoinedCache<B>;

    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Self::Cache>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        self.model.forward_hidden(ids, padding, cache.map(|cache| &mut cache.layers), key)
    }

    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.model.lm_head(hidden)
    }

    fn new_cache(&self, room: usize) -> Self::Cache {
        UnjoinedCache { layers: self.model.new_cache(room) }
    }

    fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    fn context(&self) -> Option<usize> {
        self.model.context()
    }
}

#[test]
fn a_cache_that_cannot_be_joined_serves_one_batch_after_the_other() {
    let model = Unjoined { model: load::<Flex, Gpt2<Flex>>("gpt2/tiny_a", &Default::default()) };
    same_alone("unjoined", &model, 40);
}

#[test]
fn rules_and_jitted_steps_are_those_of_each_prompt() {
    let model = load::<Flex, Gpt2<Flex>>("gpt2/tiny_a", &Default::default());
    let prompts = &prompts(67)[..6];
    let rules = TokenRules { no_repeat_ngram_size: 2, min_new_tokens: 3, ..TokenRules::default() };
    for rules in [TokenRules::default(), rules] {
        let options = GenerateOptions { rules, sampling: Sampling::default(), ..greedy(12) };
        let alone = GenerateOptions { batch_size: Some(1), ..options.clone() };
        let batches = GenerateOptions { batch_size: Some(3), ..options };
        let expected = generate(&model, prompts, &alone, |_, _| true).unwrap();
        assert_eq!(generate(&model, prompts, &batches, |_, _| true).unwrap(), expected);
        assert_eq!(model.jitted().generate(prompts, &batches).unwrap(), expected);
    }
}

#[test]
fn rejects_batches_of_no_prompts() {
    let model = load::<Flex, Gpt2<Flex>>("gpt2/tiny_a", &Default::default());
    let options = GenerateOptions { batch_size: Some(0), ..greedy(1) };
    let error = generate(&model, &[vec![1]], &options, |_, _| true).unwrap_err();
    assert!(matches!(error, ModelError::Option { option: "the batch size", .. }), "{error}");
}

#[test]
fn prompts_without_new_tokens_end_too() {
    let model = load::<Flex, Gpt2<Flex>>("gpt2/tiny_a", &Default::default());
    let found = continued(&model, &prompts(67), &greedy(0), Some(3));
    assert!(found.iter().all(|row| row.ids.is_empty() && row.finish == Finish::Length));
}
