//! Batch normalisation on flex, for f32, with its epilogue in the same pass.

use burn::tensor::Shape;
use burn_flex::{Flex, FlexTensor};
use grove_kernels as kernels;

use super::{contiguous, elements, map_in_place, shape, tensor};
use crate::ops::{BatchNorm, Outcome, Values};

/// Returns the kernel's parameters for a batch `[b, c, h, w]`.
fn kernel<'a>(norm: BatchNorm, x: &FlexTensor, weight: &'a FlexTensor) -> kernels::BatchNorm<'a> {
    let [_, channels, height, width] = x.layout().shape().dims();
    kernels::BatchNorm { channels, plane: height * width, weight: elements(weight), relu: norm.relu }
}

pub(super) fn forward(norm: BatchNorm, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let [x, weight, bias] = [0, 1, 2].map(|i| contiguous(inputs.take_float(i)));
    let residual = inputs.take_optional_float(3).map(contiguous);
    let kernel = kernel(norm, &x, &weight);
    let (mut mean, mut variance) = (vec![0.0; kernel.channels], vec![0.0; kernel.channels]);
    let residual = residual.as_ref().map(elements);
    let y = kernel.forward(elements(&x), norm.eps as f32, elements(&bias), residual, &mut mean, &mut variance);
    let channels = Shape::from([kernel.channels]);
    Outcome::new([tensor(y, shape(&x)), tensor(mean, channels.clone()), tensor(variance, channels)])
}

pub(super) fn vjp(norm: BatchNorm, residuals: Values<Flex>, mut grads: Values<Flex>) -> Values<Flex> {
    let [x, weight, output, mean, variance] = residuals.take_floats().map(contiguous);
    let kernel = kernel(norm, &x, &weight);
    let (mut dx, mut dweight, mut dbias) = (vec![], vec![0.0; kernel.channels], vec![0.0; kernel.channels]);
    let moments = [elements(&mean), elements(&variance)];
    let grad = map_in_place(grads.take_float(0), |grad| {
        let y = elements(&output);
        dx = kernel.backward(elements(&x), norm.eps as f32, moments, y, grad, &mut dweight, &mut dbias);
    });
    let channels = Shape::from([kernel.channels]);
    Values::floats([tensor(dx, shape(&x)), tensor(dweight, channels.clone()), tensor(dbias, channels), grad])
}
