//! Row operations on flex, for f32.

use burn::tensor::{DType, Shape};
use burn_flex::Flex;
use grove_kernels as kernels;

use super::{contiguous, elements, elementwise::map, half, map_in_place, shape, tensor};
use crate::ops::{MaskedSoftmax, Outcome, RowNorm, Values, Wanted, embedding::sum_before};

/// Returns true if the kernel supports a softmax: no window, padding or lengths, and no causal query without keys (more
/// queries than keys).
pub(super) fn takes(softmax: &MaskedSoftmax, inputs: &Values<Flex>) -> bool {
    let scores = inputs.float(0).layout().shape();
    let plain = softmax.window.is_none() && inputs.get(1).is_none() && inputs.get(2).is_none();
    plain && !(softmax.causal && scores[2] > scores[3])
}

pub(super) fn softmax(softmax: MaskedSoftmax, inputs: Values<Flex>) -> Outcome<Flex> {
    let (t, s) = (inputs.shape(0)[2], inputs.shape(0)[3]);
    let (scale, queries) = (softmax.scale as f32, softmax.causal.then_some(t));
    let in_place = |scores: &mut [f32]| kernels::softmax_rows(scores, s, scale, queries);
    map(inputs, in_place, |scores| kernels::softmax_rows_of(scores, s, scale, queries))
}

pub(super) fn softmax_vjp(
    softmax: MaskedSoftmax,
    mut residuals: Values<Flex>,
    mut grads: Values<Flex>,
) -> Values<Flex> {
    let weights = contiguous(residuals.take_float(0));
    let (columns, scale) = (weights.layout().shape()[3], softmax.scale as f32);
    let grad = grads.take_float(0);
    Values::floats([map_in_place(grad, |grad| {
        kernels::softmax_rows_backward(elements(&weights), grad, columns, scale)
    })])
}

fn kernel(norm: RowNorm) -> kernels::RowNorm {
    kernels::RowNorm { centred: norm.centred, eps: norm.eps as f32 }
}

pub(super) fn row_norm(norm: RowNorm, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (x, weight) = (contiguous(inputs.take_float(0)), contiguous(inputs.take_float(1)));
    let bias = inputs.take_optional_float(2).map(contiguous);
    let shape = shape(&x);
    let (y, stats) = kernel(norm).forward(elements(&x), elements(&weight), bias.as_ref().map(elements));
    let of_rows = Shape::from([shape[0], 2]);
    Outcome::new([tensor(y, shape), tensor(stats, of_rows)])
}

/// Norms of 16-bit rows that are rounded before they are scaled, as in LLaMA's layers.
pub(super) fn rms_norm_of_16_bits(norm: RowNorm, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let dtype = inputs.dtype(0);
    let format = half::format(dtype).expect("16-bit rows");
    let weight = half::cast(inputs.take_float(1), dtype);
    let [x, weight] = [inputs.take_float(0), weight].map(|x| contiguous(half::cast(x, DType::F32)));
    let (y, stats) = kernel(norm).forward(elements(&x), &vec![1.0; weight.layout().num_elements()], None);
    let y = kernels::narrowed_and_scaled(format, &y, elements(&weight));
    let of_rows = Shape::from([shape(&x)[0], 2]);
    Outcome::new([half::tensor(y, shape(&x), dtype), tensor(stats, of_rows)])
}

pub(super) fn row_norm_vjp(
    norm: RowNorm,
    residuals: Values<Flex>,
    mut grads: Values<Flex>,
    wanted: &Wanted,
) -> Values<Flex> {
    let ([x, weight, stats], needs) = (residuals.take_floats().map(contiguous), wanted.needs::<3>());
    let shape = shape(&weight);
    let (mut d_weight, mut d_bias) = (vec![0.0; shape.num_elements()], vec![0.0; shape.num_elements()]);
    let dx = map_in_place(grads.take_float(0), |grad| {
        let (x, weight, stats) = (elements(&x), elements(&weight), elements(&stats));
        kernel(norm).backward(x, weight, stats, grad, &mut d_weight, &mut d_bias);
    });
    let [of_weight, of_bias] = [d_weight, d_bias].map(|values| tensor(values, shape.clone()));
    Values::optional_floats([needs[0].then_some(dx), needs[1].then_some(of_weight), needs[2].then_some(of_bias)])
}

pub(super) fn nll(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (logits, labels) = (contiguous(inputs.take_float(0)), contiguous(inputs.take_int(1)));
    let labels = labels.as_slice::<i64>().expect("a contiguous tensor of i64");
    let (mut loss, mut normaliser) = (vec![0.0; labels.len()], vec![0.0; labels.len()]);
    kernels::nll(elements(&logits), labels, &mut loss, &mut normaliser);
    let shape = Shape::from([labels.len()]);
    Outcome::new([tensor(loss, shape.clone()), tensor(normaliser, shape)])
}

pub(super) fn nll_vjp(mut residuals: Values<Flex>, mut grads: Values<Flex>) -> Values<Flex> {
    let (logits, labels) = (contiguous(residuals.take_float(0)), contiguous(residuals.take_int(1)));
    let (normaliser, grad) = (contiguous(residuals.take_float(2)), contiguous(grads.take_float(0)));
    let labels = labels.as_slice::<i64>().expect("a contiguous tensor of i64");
    let grads = kernels::nll_backward(elements(&logits), labels, elements(&normaliser), elements(&grad));
    Values::floats([tensor(grads, shape(&logits))])
}

pub(super) fn embedding_vjp(mut residuals: Values<Flex>, mut grads: Values<Flex>, wanted: &Wanted) -> Values<Flex> {
    let (sum, grad) = sum_before::<Flex>(&mut grads, wanted);
    let (indices, grad) = (contiguous(residuals.take_int(0)), contiguous(grad));
    let size = sum.layout().shape()[1];
    let indices = indices.as_slice::<i64>().expect("a contiguous tensor of i64");
    Values::floats([map_in_place(sum, |sum| {
        for (&index, grad) in indices.iter().zip(elements(&grad).chunks_exact(size.max(1))) {
            let row = &mut sum[index as usize * size..][..size];
            row.iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad);
        }
    })])
}
