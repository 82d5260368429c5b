//! Checks of every decoder against transformers: logits, loss, gradients, and logits with a cache, in steps.

use burn::tensor::{Int, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_models::CausalLm;
use grove_transform::value_and_grad;
use grove_weights::NameMap;

use crate::reference::Reference;

impl Reference {
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
