//! Batched matrix products on flex, for f32. Transposed and broadcast operands are read without a copy.

use burn::tensor::{Shape, TensorMetadata};
use burn_flex::{Flex, FlexTensor};
use grove_kernels as kernels;

use super::{
    linear::{matrix_at, plain},
    tensor,
};
use crate::ops::{Outcome, Values};

pub(super) fn forward(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let [a, b] = [inputs.take_float(0), inputs.take_float(1)].map(plain);
    let d = a.shape().num_dims();
    let batch: Vec<usize> =
        (0..d - 2).map(|axis| if a.shape()[axis] == 1 { b.shape()[axis] } else { a.shape()[axis] }).collect();
    let (m, n) = (a.shape()[d - 2], b.shape()[d - 1]);
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
