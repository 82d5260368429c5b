//! f32 products and convolutions with the kernels without tensor cores, on any device, against flex.
#![recursion_limit = "256"]
#![cfg(all(feature = "flex", feature = "candle"))]

use burn::tensor::{Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Conv2dOptions, Flex, matmul, ops};

#[macro_use]
mod common;

/// Returns pseudo-random values between -1 and 1.
fn values<B: Backend, const D: usize>(shape: [usize; D], seed: u64, device: &B::Device) -> Tensor<B, D> {
    let count = shape.iter().product::<usize>() as u64;
    let hash = |i: u64| (i + seed * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let values: Vec<f32> = (0..count).map(|i| hash(i) as f32 / (1 << 23) as f32 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn list<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().iter().collect()
}

/// Fails unless the values equal flex's, up to the rounding of f32 sums in another order.
#[track_caller]
fn same(found: &[Vec<f64>], expected: &[Vec<f64>], what: &str) {
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let (apart, largest) = common::distance(found, expected);
        assert!(apart <= 2e-6 * largest, "{what}, {i}: apart by {apart} of {largest}");
    }
}

/// Returns the product and the gradients of both operands, some of which are transposed in memory.
fn product<B: Backend>([batch, m, k, n]: [usize; 4], transposed: [bool; 2], device: &B::Device) -> Vec<Vec<f64>> {
    let factor = |[rows, columns]: [usize; 2], transposed: bool, seed| {
        let shape = if transposed { [batch, columns, rows] } else { [batch, rows, columns] };
        let leaf = Tensor::<Autodiff<B>, 3>::from_inner(values(shape, seed, device)).require_grad();
        let used = if transposed { leaf.clone().swap_dims(1, 2) } else { leaf.clone() };
        (leaf, used)
    };
    let ((lhs, a), (rhs, b)) = (factor([m, k], transposed[0], 1), factor([k, n], transposed[1], 2));
    // Operations that would be fused with the product.
    let y = matmul(a, b).mul_scalar(0.5) + 1.0;
    let weights = Tensor::from_inner(values([batch, m, n], 3, device));
    let grads = (y.clone() * weights).sum().backward();
    vec![list(y.inner()), list(lhs.grad(&grads).unwrap()), list(rhs.grad(&grads).unwrap())]
}

fn products<B: Backend>(device: B::Device) {
    #[cfg(feature = "cuda")]
    grove_backend::use_f32_kernels_on_every_device();
    for (sizes, transposed) in [
        ([1, 16, 24, 32], [false, false]),
        ([2, 33, 17, 65], [false, true]),
        ([3, 12, 40, 9], [true, false]),
        ([1, 70, 64, 96], [true, true]),
    ] {
        let expected = product::<Flex>(sizes, transposed, &Default::default());
        same(&product::<B>(sizes, transposed, &device), &expected, &format!("{sizes:?} {transposed:?}"));
    }
}

/// A broadcast matrix, and a linear layer with a bias.
fn broadcasts<B: Backend>(device: B::Device) {
    #[cfg(feature = "cuda")]
    grove_backend::use_f32_kernels_on_every_device();
    fn run<B: Backend>(device: &B::Device) -> Vec<Vec<f64>> {
        let (x, w) = (values::<B, 3>([3, 20, 12], 1, device), values::<B, 3>([1, 12, 18], 2, device));
        let all = matmul(x.clone(), w.clone());
        let linear = ops::linear(x, w.reshape([12, 18]), Some(values::<B, 1>([18], 3, device)));
        vec![list(all), list(linear)]
    }
    same(&run::<B>(&device), &run::<Flex>(&Default::default()), "broadcast");
}

/// Returns a convolution and its gradients. Either the channels or the columns of the input are adjacent in memory.
fn convolved<B: Backend>(
    size: [usize; 4],
    [out, height, width]: [usize; 3],
    options: Conv2dOptions,
    channels_last: bool,
    device: &B::Device,
) -> Vec<Vec<f64>> {
    let [b, c, h, w] = size;
    let leaf = |shape, seed| Tensor::<Autodiff<B>, 4>::from_inner(values(shape, seed, device)).require_grad();
    let x = leaf(if channels_last { [b, h, w, c] } else { size }, 1);
    let weight = leaf([out, c / options.groups, height, width], 2);
    let used = if channels_last { x.clone().permute([0, 3, 1, 2]) } else { x.clone() };
    let y = ops::conv2d(used, weight.clone(), options);
    let weights = Tensor::from_inner(values(y.dims(), 3, device));
    let grads = (y.clone() * weights).sum().backward();
    vec![list(y.inner()), list(x.grad(&grads).unwrap()), list(weight.grad(&grads).unwrap())]
}

fn convolutions<B: Backend>(device: B::Device) {
    #[cfg(feature = "cuda")]
    grove_backend::use_f32_kernels_on_every_device();
    for (size, kernel, options) in [
        ([3, 10, 5, 6], [12, 1, 1], Conv2dOptions::default()),
        ([4, 9, 7, 5], [10, 3, 3], Conv2dOptions { padding: [1, 1], ..Default::default() }),
        // No window covers the last column of pixels.
        ([2, 3, 14, 12], [9, 5, 3], Conv2dOptions { stride: [2, 2], padding: [2, 1], ..Default::default() }),
        // Some pixels are between windows.
        ([2, 12, 9, 9], [16, 1, 1], Conv2dOptions { stride: [2, 2], ..Default::default() }),
        (
            [2, 18, 8, 7],
            [20, 3, 3],
            Conv2dOptions { dilation: [2, 1], padding: [2, 1], groups: 2, ..Default::default() },
        ),
    ] {
        for channels_last in [false, true] {
            let expected = convolved::<Flex>(size, kernel, options, channels_last, &Default::default());
            let found = convolved::<B>(size, kernel, options, channels_last, &device);
            same(&found, &expected, &format!("{size:?} {kernel:?} {options:?} {channels_last}"));
        }
    }
}

on_each_backend!(products, broadcasts, convolutions);
