//! Checks of every decoder against transformers: logits, loss, gradients, and greedy continuations of one prompt and of
//! several padded ones; the same with a cache, in steps, after truncation, and with a draft.

use burn::tensor::{Int, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_models::{
    CausalLm, GenerateOptions, generate,
    generation::{DecodeSession, Sampling, generate_with_cache, generate_with_draft},
};
use grove_transform::value_and_grad;
use grove_weights::NameMap;

use crate::reference::Reference;

fn greedy(max_new_tokens: usize) -> GenerateOptions {
    let sampling = Sampling::greedy();
    GenerateOptions { max_new_tokens, sampling, ignore_eos: true, ..GenerateOptions::default() }
}

impl Reference {
    fn ids(&self, part: &str) -> Vec<u32> {
        self.data(part).iter::<i64>().map(|id| id as u32).collect()
    }

    pub fn tensor_of_ids<B: Backend>(&self, part: &str, device: &B::Device) -> Tensor<B, 2, Int> {
        Tensor::from_data(self.data(part), device)
    }
}

fn lift<B: Backend>(x: &Tensor<B, 2, Int>) -> Tensor<Autodiff<B>, 2, Int> {
    Tensor::from_inner(x.clone())
}

pub fn check_logits<B: Backend, M: CausalLm<B>>(reference: &Reference, model: &M, device: &B::Device, tolerance: f64) {
    let ids = reference.tensor_of_ids::<B>("input_ids", device);
    reference.close("logits", model.forward(ids, None).into_data(), tolerance);
}

pub fn check_forward<B: Backend, M: CausalLm<B>>(reference: &Reference, model: &M, device: &B::Device) {
    let ids = || reference.tensor_of_ids::<B>("input_ids", device);
    if reference.has("input_ids") {
        check_logits(reference, model, device, 1e-4);
    }
    if reference.has("loss") {
        let labels = reference.tensor_of_ids::<B>("labels", device);
        reference.close("loss", model.loss(ids(), labels, None).into_data(), 1e-4);
    }
    if reference.has("deep.input_ids") {
        let ids = reference.tensor_of_ids::<B>("deep.input_ids", device);
        let [b, t] = ids.dims();
        let logits = model.forward(ids.clone(), None);
        let [.., vocab] = logits.dims();
        reference.close("deep.logits", logits.slice([0..b, t - 3..t, 0..vocab]).into_data(), 1e-4);
    }
}

/// Decoding with a cache, in steps of several sizes, matches one forward pass.
pub fn check_cache<B: Backend, M: CausalLm<B>>(model: &M, ids: Tensor<B, 2, Int>, steps: &[usize]) {
    let [b, t] = ids.dims();
    let all = model.forward(ids.clone(), None);
    let vocab = all.dims()[2];
    for room in [0, t] {
        let (mut state, mut at) = (model.new_cache(room), 0);
        for step in steps.iter().cycle() {
            let step = (*step).min(t - at);
            let (logits, next) = model.decode(ids.clone().slice([0..b, at..at + step]), &[], state);
            (state, at) = (next, at + step);
            let expected = all.clone().slice([0..b, at - 1..at]).reshape([b, vocab]);
            let [found, expected] = [logits, expected].map(|x| x.into_data().iter::<f64>().collect::<Vec<_>>());
            let (apart, largest) = crate::common::distance(&found, &expected);
            assert!(apart <= 1e-4 * largest, "after {at} positions, room {room}: apart by {apart} of {largest}");
            if at == t {
                break;
            }
        }
    }
}

pub fn check_gradients<B: Backend, M>(reference: &Reference, model: &M, names: &NameMap, device: &B::Device)
where
    M: CausalLm<B>,
    M::On<Autodiff<B>>: CausalLm<Autodiff<B>>,
{
    let (ids, labels) =
        (reference.tensor_of_ids::<B>("input_ids", device), reference.tensor_of_ids::<B>("labels", device));
    let (loss, grads) = value_and_grad(model, |m| m.loss(lift(&ids), lift(&labels), None));
    reference.close("loss", loss.into_data(), 1e-4);
    reference.gradients("grad.", &grads, names);
}

/// Checks greedy continuations in all decoding modes.
pub fn check_greedy<B: Backend, M: CausalLm<B>>(reference: &Reference, model: &M) {
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
