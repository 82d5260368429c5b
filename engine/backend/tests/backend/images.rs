//! Image operations on flex: kernels and exact backward passes against Burn's own operations on the same backend, which Burn
//! differentiates. (Comparisons with torch are in the crates of the layers.)
#![cfg(feature = "flex")]

use crate::against::values;
use burn::tensor::{Tensor, TensorData, activation, module, ops::ConvOptions};
use grove_backend::{
    Autodiff, Conv2dOptions, Epilogue, Flex, Pool2dOptions,
    ops::{self, BatchNorm},
};

type Diff = Autodiff<Flex>;
type Image = Tensor<Diff, 4>;

/// Returns pseudo-random values.
fn numbers<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<Diff, D> {
    let count = shape.iter().product::<usize>() as u64;
    let hash = |i: u64| (i + seed * 1_000_003).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let values: Vec<f32> = (0..count).map(|i| hash(i) as f32 / (1 << 23) as f32 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), &Default::default())
}

fn close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1.0f64, |largest, x| largest.max(x.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 2e-5 * largest, "{what}: {a}, not {b}");
    }
}

/// Compares outputs and gradients of two functions, for inputs of these shapes.
fn compare(what: &str, shapes: &[[usize; 4]], ours: &dyn Fn(&[Image]) -> Image, theirs: &dyn Fn(&[Image]) -> Image) {
    let run = |f: &dyn Fn(&[Image]) -> Image| {
        let inputs: Vec<Image> =
            shapes.iter().zip(1..).map(|(shape, seed)| numbers(*shape, seed).require_grad()).collect();
        // Also with non-contiguous inputs.
        let turned: Vec<Image> = inputs.iter().map(|x| x.clone().swap_dims(2, 3)).collect();
        let mut found = vec![];
        for x in [&inputs, &turned] {
            let y = f(x);
            let grads = (y.clone() * numbers(y.dims(), 77)).sum().backward();
            found.push(values(y.inner()));
            found.extend(inputs.iter().map(|x| values(x.grad(&grads).expect("a gradient"))));
        }
        found
    };
    for (found, expected) in run(ours).iter().zip(&run(theirs)) {
        close(what, found, expected);
    }
}

#[test]
fn convolutions() {
    for (size, out, kernel, options) in [
        ([2, 3, 8, 8], 5, 1, Conv2dOptions::default()),
        ([2, 16, 9, 9], 20, 3, Conv2dOptions { padding: [1, 1], ..Default::default() }),
        ([3, 4, 9, 9], 6, 3, Conv2dOptions { stride: [2, 2], padding: [1, 1], groups: 2, ..Default::default() }),
        ([1, 6, 11, 11], 6, 3, Conv2dOptions { padding: [2, 2], dilation: [2, 2], groups: 6, ..Default::default() }),
        ([1, 3, 15, 15], 4, 7, Conv2dOptions { stride: [2, 2], padding: [3, 3], ..Default::default() }),
    ] {
        let shapes = [size, [out, size[1] / options.groups, kernel, kernel]];
        let Conv2dOptions { stride, padding, dilation, groups } = options;
        let burn = ConvOptions::new(stride, padding, dilation, groups);
        compare(&format!("{options:?}"), &shapes, &|x| ops::conv2d(x[0].clone(), x[1].clone(), options), &|x| {
            module::conv2d(x[0].clone(), x[1].clone(), None, burn.clone())
        });
        let [x, weight] = [numbers(shapes[0], 1).inner(), numbers(shapes[1], 2).inner()];
        let [scale, shift] = [numbers([out], 3).inner(), numbers([out], 4).inner()];
        let y = module::conv2d(x.clone(), weight.clone(), None, burn);
        let residual = numbers(y.dims(), 5).inner();
        let row = |x: &Tensor<Flex, 1>| x.clone().reshape([1, out, 1, 1]);
        let expected = activation::relu(y * row(&scale) + row(&shift) + residual.clone());
        let epilogue = Epilogue { scale, shift, residual: Some(residual), relu: true };
        close("epilogue", &values(ops::conv2d_fused(x, weight, epilogue, options)), &values(expected));
    }
}

#[test]
fn batch_norm() {
    for (residual, relu) in [(false, false), (false, true), (true, true)] {
        let each = |x: &Image| x.clone().reshape([3]);
        let shape = [4, 3, 5, 5];
        let mut shapes = vec![shape, [1, 3, 1, 1], [1, 3, 1, 1]];
        shapes.extend(residual.then_some(shape));
        compare(
            &format!("residual {residual}, relu {relu}"),
            &shapes,
            &|x| {
                let options = BatchNorm { relu, eps: 1e-3 };
                ops::batch_norm(x[0].clone(), each(&x[1]), each(&x[2]), x.get(3).cloned(), options).output
            },
            &|x| {
                let mean = x[0].clone().mean_dim(0).mean_dim(2).mean_dim(3);
                let centred = x[0].clone() - mean;
                let variance = centred.clone().powi_scalar(2).mean_dim(0).mean_dim(2).mean_dim(3);
                let y = centred / (variance + 1e-3).sqrt() * x[1].clone() + x[2].clone();
                let y = if residual { y + x[3].clone() } else { y };
                if relu { activation::relu(y) } else { y }
            },
        );
    }
}

#[test]
fn max_pool() {
    for options in [
        Pool2dOptions { kernel: [3, 3], stride: [2, 2], padding: [1, 1] },
        Pool2dOptions { kernel: [2, 3], stride: [1, 3], padding: [0, 1] },
    ] {
        let Pool2dOptions { kernel, stride, padding } = options;
        compare(&format!("{options:?}"), &[[2, 3, 9, 9]], &|x| ops::max_pool2d(x[0].clone(), options), &|x| {
            module::max_pool2d(x[0].clone(), kernel, stride, padding, [1, 1], false)
        });
    }
}
