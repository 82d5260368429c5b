//! Batched matrix products on flex, for f32 and bf16. Transposed and broadcast operands are read without a copy.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use grove_kernels as kernels;

use super::{
    half,
    linear::{matrix_at, plain},
    tensor,
};
use crate::ops::{Outcome, Values};

/// Multiplies bf16, and rounds the results to bf16; `None` if there is no kernel for these sizes on this CPU.
pub(super) fn forward_bf16(inputs: &Values<Flex>) -> Option<Outcome<Flex>> {
    let [a, b] = [inputs.float(0), inputs.float(1)].map(|x| plain(x.clone()));
    if [&a, &b].iter().any(|x| x.dtype() != DType::BF16) {
        return None;
    }
    let (batch, [m, n]) = sizes(&a, &b);
    let product = |i: usize| {
        let (a, b) = (matrix_at::<u16>(&a, offset(&a, &batch, i)), matrix_at::<u16>(&b, offset(&b, &batch, i)));
        kernels::rounded_product_bf16(a, b, None)
    };
    let count = batch.iter().product::<usize>();
    let out = if count == 1 { product(0)? } else { (0..count).map(product).collect::<Option<Vec<_>>>()?.concat() };
    let shape = Shape::from([&batch[..], &[m, n]].concat());
    Some(Outcome::new([half::tensor(out, shape, DType::BF16)]))
}

/// Returns the batch axes of a product, and its numbers of rows and columns.
fn sizes(a: &FlexTensor, b: &FlexTensor) -> (Vec<usize>, [usize; 2]) {
    let (a, b) = (a.shape(), b.shape());
    let d = a.num_dims();
    let batch = (0..d - 2).map(|axis| if a[axis] == 1 { b[axis] } else { a[axis] }).collect();
    (batch, [a[d - 2], b[d - 1]])
}

pub(super) fn forward(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let [a, b] = [inputs.take_float(0), inputs.take_float(1)].map(plain);
    let (batch, [m, n]) = sizes(&a, &b);
    let mut out = vec![0.0; batch.iter().product::<usize>() * m * n];
    if !out.is_empty() {
        kernels::for_chunks(&mut out, m * n, |i, c| {
            kernels::matmul(matrix_at(&a, offset(&a, &batch, i)), matrix_at(&b, offset(&b, &batch, i)), None, c);
        });
    }
    let shape = Shape::from([&batch[..], &[m, n]].concat());
    Outcome::new([tensor(out, shape)])
}

/// Offset in elements from the first matrix of a tensor to the one for batch index `i`.
fn offset(x: &FlexTensor, batch: &[usize], mut i: usize) -> usize {
    let (shape, strides) = (x.layout().shape(), x.layout().strides());
    let mut offset = 0;
    for axis in (0..batch.len()).rev() {
        if shape[axis] > 1 {
            offset += i % batch[axis] * strides[axis] as usize;
        }
        i /= batch[axis];
    }
    offset
}
