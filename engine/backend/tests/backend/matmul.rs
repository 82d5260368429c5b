//! Products with vectors, followed by operations that a JIT-fusing backend fuses.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::common;
use burn::tensor::{Distribution, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Flex, matmul};

/// Integers, so that the summation order does not matter.
fn numbers<B: Backend>(shape: [usize; 2], seed: usize, device: &B::Device) -> Tensor<B, 2> {
    let values = (0..shape[0] * shape[1]).map(|i| ((i * 7919 + seed * 104_729) % 17) as f32 - 8.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns a product with fused operations, and the gradients of both operands.
fn run<B: Backend>([m, k, n]: [usize; 3], transposed: bool, narrowed: bool, device: &B::Device) -> [Vec<f32>; 3] {
    let lhs = Tensor::<Autodiff<B>, 2>::from_inner(numbers::<B>([m + 3, k], 1, device)).require_grad();
    let rhs = if transposed { [n, k] } else { [k, n] };
    let rhs = Tensor::<Autodiff<B>, 2>::from_inner(numbers::<B>(rhs, 2, device)).require_grad();
    let x = lhs.clone().narrow(0, if narrowed { 2 } else { 0 }, m);
    let w = if transposed { rhs.clone().transpose() } else { rhs.clone() };
    // Any operation between the product and the following ones would prevent their fusion.
    let bias = Tensor::from_inner(numbers::<B>([m, n], 3, device));
    let y = matmul(x, w) + bias;
    let y = y.clone() * y.mul_scalar(0.5);
    let grads = y.clone().sum().backward();
    let list = |x: Tensor<B, 2>| x.into_data().iter::<f32>().collect();
    [list(y.inner()), list(lhs.grad(&grads).unwrap()), list(rhs.grad(&grads).unwrap())]
}

fn vectors<B: Backend>(device: B::Device) {
    for sizes in [[1, 4, 4], [4, 8, 1], [1, 5, 1], [2, 4, 4]] {
        for (transposed, narrowed) in [(false, false), (true, false), (true, true)] {
            let found = run::<B>(sizes, transposed, narrowed, &device);
            let expected = run::<Flex>(sizes, transposed, narrowed, &Default::default());
            assert_eq!(found, expected, "{sizes:?}, transposed {transposed}, narrowed {narrowed}");
        }
    }
}

/// A state to which fewer and fewer sequences write, the case that revealed the wrong kernel.
fn states<B: Backend>(device: B::Device) {
    fn walk<B: Backend>(device: &B::Device) -> Vec<f64> {
        let (x, w) = (numbers::<B>([18, 4], 1, device), numbers::<B>([4, 4], 2, device).transpose());
        let mut h = numbers::<B>([4, 4], 3, device);
        let (mut outputs, mut start) = (vec![], 0);
        for alive in [4, 4, 3, 3, 2, 1, 1] {
            let sum = x.clone().narrow(0, start, alive) + matmul(h.clone().narrow(0, 0, alive), w.clone());
            h = if alive == 4 { sum.clone() } else { Tensor::cat(vec![sum.clone(), h.narrow(0, alive, 4 - alive)], 0) };
            outputs.push(sum);
            start += alive;
        }
        outputs.push(h);
        Tensor::cat(outputs, 0).into_data().iter().collect()
    }
    let (apart, largest) = common::distance(&walk::<B>(&device), &walk::<Flex>(&Default::default()));
    assert!(apart <= 1e-5 * largest, "apart by {apart} of {largest}");
}

/// Rank 3, as in products of attention heads with their keys.
fn batches<B: Backend>(device: B::Device) {
    let random = |shape: [usize; 3]| Tensor::<B, 3>::random(shape, Distribution::Uniform(-1.0, 1.0), &device);
    let (query, keys) = (random([3, 1, 8]), random([3, 6, 8]));
    let found = matmul(query.clone(), keys.clone().swap_dims(1, 2)).mul_scalar(2.0);
    let expected = (query * keys).sum_dim(2).swap_dims(1, 2).mul_scalar(2.0);
    let list = |x: Tensor<B, 3>| x.into_data().iter::<f64>().collect::<Vec<_>>();
    let (apart, largest) = common::distance(&list(found), &list(expected));
    assert!(apart <= 1e-5 * largest, "apart by {apart} of {largest}");
}

/// Batches of matrices in every layout: the CPU kernels against Burn's product. Integers, so that both are exact.
#[test]
fn layouts_of_batches_flex() {
    type T = Tensor<Flex, 4>;
    type Layout = (&'static str, fn(T) -> T);
    let device = Default::default();
    let new = |shape: [usize; 4], seed: usize| -> T {
        let count = shape.iter().product::<usize>();
        let values = (0..count).map(|i| ((i * 7919 + seed * 104_729) % 17) as f32 - 8.0).collect();
        Tensor::from_data(TensorData::new(values, shape), &device)
    };
    let layouts: [Layout; 6] = [
        ("as it is", |x| x),
        ("transposed", |x| (x.clone().swap_dims(2, 3) * 1.0).swap_dims(2, 3)),
        ("flipped", |x| x.flip([0, 3])),
        ("a part", |x| Tensor::cat(vec![x.clone(), x.clone()], 2).narrow(2, 0, x.dims()[2])),
        ("columns of a wider one", |x| Tensor::cat(vec![x.clone(), x.clone()], 3).narrow(3, 0, x.dims()[3])),
        ("heads", |x| (x.swap_dims(1, 2) * 1.0).swap_dims(1, 2)),
    ];
    for [m, k, n] in [[1, 5, 3], [3, 4, 1], [7, 6, 9], [40, 33, 18], [2, 0, 3], [0, 2, 3]] {
        for [a, b] in [[[2, 3], [2, 3]], [[2, 1], [1, 3]], [[1, 1], [2, 3]], [[2, 3], [1, 1]], [[0, 3], [0, 3]]] {
            // Burn does not slice empty tensors.
            let possible = if m * k * n == 0 { &layouts[..2] } else { &layouts[..] };
            for (left, of_left) in possible {
                for (right, of_right) in possible {
                    let x = of_left(new([a[0], a[1], m, k], 1));
                    let y = of_right(new([b[0], b[1], k, n], 2));
                    let found = matmul(x.clone(), y.clone());
                    let shape = [if a[0] == 1 { b[0] } else { a[0] }, a[1].max(b[1])];
                    // Burn does not broadcast empty tensors.
                    let empty = x.shape().num_elements() == 0 || y.shape().num_elements() == 0;
                    let expected = match empty {
                        true => T::zeros([shape[0], shape[1], m, n], &device),
                        false => x.expand([shape[0], shape[1], m, k]).matmul(y.expand([shape[0], shape[1], k, n])),
                    };
                    assert_eq!(found.dims(), expected.dims());
                    let list = |x: T| x.into_data().iter::<f32>().collect::<Vec<_>>();
                    assert_eq!(list(found), list(expected), "{m} {k} {n}, {a:?} {b:?}: {left}, {right}");
                }
            }
        }
    }
}

/// Three batch axes, of which each operand lacks one, as in per-example gradients of attention.
fn many_batch_axes<B: Backend>(device: B::Device) {
    let value = |i: usize, seed: usize| ((i * 7919 + seed * 104_729) % 17) as f32 - 8.0;
    let values = |count: usize, seed| (0..count).map(|i| value(i, seed)).collect::<Vec<f32>>();
    let lhs = Tensor::<B, 5>::from_data(TensorData::new(values(2 * 3 * 5 * 4, 1), [2, 1, 3, 5, 4]), &device);
    let rhs = Tensor::<B, 5>::from_data(TensorData::new(values(2 * 2 * 7 * 4, 2), [2, 2, 1, 7, 4]), &device);
    let y = matmul(lhs, rhs.swap_dims(3, 4));
    assert_eq!(y.dims(), [2, 2, 3, 5, 7]);
    let mut expected = Vec::new();
    for index in 0..2 * 2 * 3 * 5 * 7 {
        let [a, b, c, m, n] = [index / 210, index / 105 % 2, index / 35 % 3, index / 7 % 5, index % 7];
        let product = |k: usize| value(((a * 3 + c) * 5 + m) * 4 + k, 1) * value(((a * 2 + b) * 7 + n) * 4 + k, 2);
        expected.push((0..4).map(product).sum::<f32>());
    }
    assert_eq!(y.into_data().to_vec::<f32>().unwrap(), expected);
}

on_each_backend!(vectors, states, batches, many_batch_axes);
