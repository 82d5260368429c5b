//! Decoding with a fixed-size cache: one program serves every position.

use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, Candle, Flex};
use grove_compile::{Traced, jit};
use grove_models::{CausalLm, Gpt2, GptNeo, Llama, Pretrained, RnnLm};
use grove_tree::{Array, Key, Tree};
use std::path::Path;

fn load<B: Backend, M: Pretrained<B>>(path: &str) -> M {
    let folder = Path::new("../../models/tests/fixtures").join(path);
    M::from_path(folder, &Default::default(), None).unwrap().0
}

fn ids<B: Backend>(t: usize, seed: u64) -> Tensor<B, 2, Int> {
    Key::new(seed).randint([2, t], 0, 20, &Default::default())
}

fn apart<B: Backend>(a: Tensor<B, 2>, b: Tensor<B, 2>) -> f32 {
    (a - b).abs().max().into_data().iter::<f32>().next().unwrap()
}

/// Decodes a prompt and ten tokens with the growing cache and with a jitted step on a fixed-size cache.
fn a_step_serves_every_position<B, M>(path: &str, programs: usize)
where
    B: Backend,
    M: Pretrained<B> + CausalLm<B>,
    M::On<Traced>: CausalLm<Traced, Cache = <M::Cache as Tree<B>>::On<Traced>> + Tree<Traced, On<B> = M>,
    <M::Cache as Tree<B>>::On<Traced>: Tree<Traced, On<B> = M::Cache>,
{
    let model: M = load(path);
    type Args<M, C> = (M, Array<Traced, 2, Int>, C);
    let step = jit(|(model, ids, cache): Args<M::On<Traced>, <M::Cache as Tree<B>>::On<Traced>>| {
        let (logits, cache) = model.decode(ids.val(), &[], cache);
        (Array::<Traced, 2>::new(logits), cache)
    });
    let (mut growing, mut fixed) = (model.new_cache(0), model.new_fixed_cache(20));
    for i in 0..11 {
        let ids = ids::<B>(if i == 0 { 9 } else { 1 }, i);
        let (expected, next) = model.decode(ids.clone(), &[], growing);
        growing = next;
        let (found, next) = step.call::<B>((model.clone(), Array::new(ids), fixed));
        fixed = next;
        let apart = apart(found.val(), expected);
        assert!(apart < 2e-5, "{path}, step {i}: apart by {apart}");
    }
    assert_eq!(step.graphs().len(), programs, "{path}");
}

macro_rules! on {
    ($name:ident, $B:ty) => {
        #[test]
        fn $name() {
            // One program for the prompt, and one for all following tokens.
            a_step_serves_every_position::<$B, Gpt2<$B>>("gpt2/tiny_a", 2);
            a_step_serves_every_position::<$B, GptNeo<$B>>("gpt_neo/tiny", 2);
            for model in ["llama/gqa", "llama/mistral", "llama/rope_llama3"] {
                a_step_serves_every_position::<$B, Llama<$B>>(model, 2);
            }
            a_step_serves_every_position::<$B, RnnLm<$B>>("rnn/lm_lstm_tied/model.pt", 2);
        }
    };
}

on!(a_step_serves_every_position_flex, Flex);
on!(a_step_serves_every_position_candle, Candle);

/// Rows with left padding, without a trace, and windows shorter than the sequence.
#[test]
fn padding_and_windows() {
    fn check<M: Pretrained<Flex> + CausalLm<Flex>>(path: &str) {
        let model: M = load(path);
        let (mut growing, mut fixed) = (model.new_cache(0), model.new_fixed_cache(20));
        for i in 0..10 {
            let ids = ids::<Flex>(if i == 0 { 6 } else { 1 + i as usize % 2 }, i);
            let (expected, next) = model.decode(ids.clone(), &[0, 3], growing);
            growing = next;
            let (found, next) = model.decode(ids, &[0, 3], fixed);
            fixed = next;
            let apart = apart(found, expected);
            assert!(apart < 2e-5, "{path}, step {i}: apart by {apart}");
        }
    }
    check::<Gpt2<Flex>>("gpt2/tiny_a");
    check::<GptNeo<Flex>>("gpt_neo/tiny");
    check::<Llama<Flex>>("llama/gqa");
    check::<Llama<Flex>>("llama/mistral");
}
