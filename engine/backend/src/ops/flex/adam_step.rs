//! AdamW step on flex, for f32: one pass over each leaf, in place if nothing else holds the leaf.

use burn_flex::{Flex, FlexTensor};
use grove_kernels as kernels;

use super::{contiguous, elements, map_in_place};
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
    let grads = contiguous(grads);
    let (mut new_mu, mut new_nu) = (None, None);
    let params = map_in_place(params, |params| {
        new_mu = Some(map_in_place(mu, |mu| {
            new_nu = Some(map_in_place(nu, |nu| step.apply(params, elements(&grads), mu, nu)));
        }));
    });
    [params, new_mu.expect("it was mapped"), new_nu.expect("it was mapped")]
}
