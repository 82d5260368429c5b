//! AdamW step on flex, with moments of f32: one pass over each leaf, in place if nothing else holds the leaf.

use burn::tensor::DType;
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Gradients};

use super::{contiguous, elements, half, map_in_place};
use crate::ops::{Outcome, Values, adam_step::leaves_of};

pub(super) fn forward(inputs: Values<Flex>) -> Outcome<Flex> {
    let (leaves, hyperparameters) = leaves_of(inputs);
    let hyperparameters = contiguous(hyperparameters);
    let &[b1, of_grad, b2, of_square, eps, eps_root, first, second, rate, decay] = elements(&hyperparameters) else {
        panic!("a step of AdamW has 10 hyperparameters, not {}", elements(&hyperparameters).len());
    };
    let step = kernels::AdamStep {
        b1: [b1, of_grad],
        b2: [b2, of_square],
        eps,
        eps_root,
        correction: [first, second],
        rate,
        decay,
    };
    Outcome::new(leaves.into_iter().flat_map(|leaf| one(&step, leaf)))
}

/// Returns the parameters and both moments of a leaf after the step.
fn one(step: &kernels::AdamStep, [params, grads, mu, nu]: [FlexTensor; 4]) -> [FlexTensor; 3] {
    let mut moments = None;
    let params = match half::format(params.dtype()) {
        None => {
            let grads = contiguous(half::cast(grads, DType::F32));
            let apply = |params: &mut [f32]| {
                moments = Some(both_in_place(mu, nu, |mu, nu| step.apply(params, elements(&grads), mu, nu)));
            };
            map_in_place(params, apply)
        }
        Some(format) => {
            let grads = contiguous(grads);
            let of_grads = match half::format(grads.dtype()) {
                Some(format) => Gradients::Half(format, half::elements(&grads)),
                None => Gradients::F32(elements(&grads)),
            };
            let apply = |params: &mut [u16]| {
                let apply = |mu: &mut [f32], nu: &mut [f32]| step.apply_to_16_bits(format, params, of_grads, mu, nu);
                moments = Some(both_in_place(mu, nu, apply));
            };
            half::map_in_place(params, apply)
        }
    };
    let [mu, nu] = moments.expect("the parameters were mapped");
    [params, mu, nu]
}

/// [`map_in_place`] for two tensors.
fn both_in_place(x: FlexTensor, y: FlexTensor, f: impl FnOnce(&mut [f32], &mut [f32])) -> [FlexTensor; 2] {
    let mut mapped = None;
    let x = map_in_place(x, |x| mapped = Some(map_in_place(y, |y| f(x, y))));
    [x, mapped.expect("the first one was mapped")]
}
