//! Batch normalisation on flex, for f32, with its epilogue in the same pass.

use burn::tensor::Shape;
use burn_flex::{Flex, FlexTensor};
use grove_kernels::BatchNorm;

use super::{changed, contiguous, elements, is_f32, tensor};
use crate::ops::{BatchNormKept, BatchNormed, batch_norm};

/// Returns the kernel's parameters for a batch `[b, c, h, w]`.
fn norm<'a>(x: &FlexTensor, weight: &'a FlexTensor, relu: bool) -> BatchNorm<'a> {
    let [_, channels, height, width] = [0, 1, 2, 3].map(|i| x.layout().shape()[i]);
    BatchNorm { channels, plane: height * width, weight: elements(weight), relu }
}

pub(super) fn forward(
    [x, weight, bias]: [FlexTensor; 3],
    residual: Option<FlexTensor>,
    relu: bool,
    eps: f64,
) -> BatchNormed<Flex> {
    if ![Some(&x), Some(&weight), Some(&bias), residual.as_ref()].into_iter().flatten().all(is_f32) {
        return batch_norm::forward::<Flex>([x, weight, bias], residual, relu, eps);
    }
    let ([x, weight, bias], residual) = ([x, weight, bias].map(contiguous), residual.map(contiguous));
    let norm = norm(&x, &weight, relu);
    let (mut mean, mut variance) = (vec![0.0; norm.channels], vec![0.0; norm.channels]);
    let residual = residual.as_ref().map(elements);
    let y = norm.forward(elements(&x), eps as f32, elements(&bias), residual, &mut mean, &mut variance);
    let channels = Shape::from([norm.channels]);
    BatchNormed {
        output: tensor(y, x.layout().shape().clone()),
        mean: tensor(mean, channels.clone()),
        variance: tensor(variance, channels),
    }
}

pub(super) fn backward(kept: BatchNormKept<Flex>, grad: FlexTensor) -> [FlexTensor; 4] {
    let BatchNormed { output, mean, variance } = &kept.normed;
    if ![&kept.x, &kept.weight, output, mean, variance, &grad].into_iter().all(is_f32) {
        return batch_norm::backward::<Flex>(kept, grad);
    }
    let BatchNormKept { x, weight, normed: BatchNormed { output, mean, variance }, eps, relu } = kept;
    let [x, weight, output, mean, variance] = [x, weight, output, mean, variance].map(contiguous);
    let norm = norm(&x, &weight, relu);
    let (mut dx, mut dweight, mut dbias) = (vec![], vec![0.0; norm.channels], vec![0.0; norm.channels]);
    let moments = [elements(&mean), elements(&variance)];
    let grad = changed(grad, |grad| {
        let y = elements(&output);
        dx = norm.backward(elements(&x), eps as f32, moments, y, grad, &mut dweight, &mut dbias);
    });
    let channels = Shape::from([norm.channels]);
    [tensor(dx, x.layout().shape().clone()), tensor(dweight, channels.clone()), tensor(dbias, channels), grad]
}
