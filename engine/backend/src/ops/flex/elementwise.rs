//! Elementwise functions on flex, for f32: in place if nothing else holds the input.

use burn_flex::Flex;
use grove_kernels::{self as kernels, Dropout};

use super::{contiguous, elements, map_in_place, shape, tensor};
use crate::ops::{Gelu, GeluApproximation, Outcome, Rope, Values};

/// Applies an elementwise function, in place if possible: allocating a tensor, with its page faults, costs more than the
/// function.
pub(super) fn map(
    mut inputs: Values<Flex>,
    in_place: impl FnOnce(&mut [f32]),
    fresh: impl FnOnce(&[f32]) -> Vec<f32>,
) -> Outcome<Flex> {
    let x = inputs.take_float(0);
    if x.is_unique() {
        return Outcome::new([map_in_place(x, in_place)]);
    }
    let x = contiguous(x);
    Outcome::new([tensor(fresh(elements(&x)), shape(&x))])
}

/// Computes the derivative of [`map`] from the input and the gradient, in place.
pub(super) fn map_vjp(
    mut residuals: Values<Flex>,
    mut grads: Values<Flex>,
    backward: fn(&[f32], &mut [f32]),
) -> Values<Flex> {
    let x = contiguous(residuals.take_float(0));
    Values::floats([map_in_place(grads.take_float(0), |grad| backward(elements(&x), grad))])
}

pub(super) fn gelu(gelu: Gelu, inputs: Values<Flex>) -> Outcome<Flex> {
    match gelu.approximate {
        GeluApproximation::None => map(inputs, kernels::gelu_erf_in_place, kernels::gelu_erf),
        GeluApproximation::Tanh => map(inputs, kernels::gelu_tanh_in_place, kernels::gelu_tanh),
    }
}

pub(super) fn gelu_vjp(gelu: Gelu, residuals: Values<Flex>, grads: Values<Flex>) -> Values<Flex> {
    match gelu.approximate {
        GeluApproximation::None => map_vjp(residuals, grads, kernels::gelu_erf_backward),
        GeluApproximation::Tanh => map_vjp(residuals, grads, kernels::gelu_tanh_backward),
    }
}

pub(super) fn dropout(dropout: Dropout, inputs: Values<Flex>) -> Outcome<Flex> {
    map(inputs, |x| dropout.apply(x), |x| dropout.applied(x))
}

pub(super) fn rope(rope: Rope, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (cos, sin) = (contiguous(inputs.take_float(1)), contiguous(inputs.take_float(2)));
    let x = inputs.take_float(0);
    let (heads, half) = (x.layout().shape()[2], x.layout().shape()[3] / 2);
    let rotate = |x: &mut [f32]| kernels::rotate(x, elements(&cos), elements(&sin), half, heads, rope.interleaved);
    Outcome::new([map_in_place(x, rotate)])
}

pub(super) fn swiglu(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let up = contiguous(inputs.take_float(1));
    Outcome::new([map_in_place(inputs.take_float(0), |gate| kernels::silu_mul(gate, elements(&up)))])
}

pub(super) fn swiglu_vjp(residuals: Values<Flex>, mut grads: Values<Flex>) -> Values<Flex> {
    let [gate, up] = residuals.take_floats().map(contiguous);
    let mut d_gate = vec![];
    let d_up = map_in_place(grads.take_float(0), |grad| {
        d_gate = kernels::silu_mul_backward(elements(&gate), elements(&up), grad);
    });
    Values::floats([tensor(d_gate, shape(&gate)), d_up])
}
