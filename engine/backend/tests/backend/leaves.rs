//! Optimizer operations on many leaves together, against a loop over Burn's operations.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{float, numbers, values};
use burn::tensor::{DType, Tensor};
use grove_backend::{AnyTensor, Backend, ops};

/// More leaves than fit into a launch, of odd sizes; one is large enough for several cubes, and some are empty.
fn sizes<B: Backend>() -> Vec<usize> {
    // CUDA's driver rejects allocations of zero bytes, which CubeCL 0.10 requests.
    let least = usize::from(B::FUSES);
    let odd = [least, 1, 2, 31, 33, 255, 257, 2047, 2049, 10_001];
    (0..130).map(|i| odd[i % odd.len()] + usize::from(i % 7 == 3)).collect()
}

fn leaves<B: Backend>(seed: u64, device: &B::Device) -> Vec<Tensor<B, 1>> {
    sizes::<B>().into_iter().enumerate().map(|(i, n)| numbers::<B, 1>([n], seed + 977 * i as u64, device)).collect()
}

/// Shapes of matrices whose rows CubeCL pads in a copy on CUDA.
const MATRICES: [[usize; 2]; 3] = [[3, 5], [37, 53], [100, 129]];

fn matrices<B: Backend>(seed: u64, device: &B::Device) -> Vec<Tensor<B, 2>> {
    (0..).zip(MATRICES).map(|(i, shape)| numbers::<B, 2>(shape, seed + 977 * i, device)).collect()
}

fn squared_norm<B: Backend>(device: B::Device) {
    for dtype in [DType::F32, DType::F16, DType::BF16] {
        if !B::computes_in(&device, dtype) {
            continue;
        }
        // Their squares overflow 16 bits.
        let leaves: Vec<_> = leaves::<B>(1, &device).into_iter().map(|x| x.mul_scalar(300.0).cast(dtype)).collect();
        let exact: f64 = leaves.iter().flat_map(|x| values(x.clone())).map(|x| x * x).sum();
        let sum = ops::sum_of_squares::<B>(leaves.into_iter().map(AnyTensor::from).collect()).expect("a sum");
        assert_eq!(sum.dtype(), DType::F32);
        let sum = values(sum)[0];
        assert!((sum - exact).abs() <= 1e-5 * exact, "{dtype:?}: {sum}, and it is {exact}");
    }
    // A single, non-contiguous tensor.
    let x = numbers::<B, 2>([37, 53], 5, &device);
    let exact: f64 = values(x.clone()).iter().map(|x| x * x).sum();
    let sum = values(ops::sum_of_squares::<B>(vec![AnyTensor::from(x.swap_dims(0, 1))]).expect("a sum"))[0];
    assert!((sum - exact).abs() <= 2e-6 * exact, "{sum}, and it is {exact}");
    // NaN and infinity propagate to the sum, also from the last leaf.
    for bad in [f32::NAN, f32::INFINITY] {
        let mut leaves = leaves::<B>(1, &device);
        leaves.push(Tensor::from_floats([1.0, bad, 2.0], &device));
        let sum =
            values(ops::sum_of_squares::<B>(leaves.into_iter().map(AnyTensor::from).collect()).expect("a sum"))[0];
        assert!(if bad.is_nan() { sum.is_nan() } else { sum == f64::INFINITY }, "{bad}: {sum}");
    }
    // An empty list, and leaves without elements.
    assert!(ops::sum_of_squares::<B>(vec![]).is_none());
    let empty = vec![
        AnyTensor::from(Tensor::<B, 2>::zeros([0, 3], &device)),
        AnyTensor::from(Tensor::<B, 1>::zeros([0], &device)),
    ];
    assert_eq!(values(ops::sum_of_squares::<B>(empty).expect("a sum")), [0.0]);
}

fn scaling<B: Backend>(device: B::Device) {
    let factor = || Tensor::<B, 1>::from_floats([-0.37], &device);
    let leaves = leaves::<B>(2, &device);
    // Some leaves are shared, and must not be modified.
    let held: Vec<_> = leaves.iter().step_by(3).cloned().collect();
    let before: Vec<_> = leaves.iter().map(|x| values(x.clone())).collect();
    let scaled = ops::scale(leaves.into_iter().map(AnyTensor::from).collect(), factor());
    assert_eq!(scaled.len(), before.len());
    for (x, before) in scaled.into_iter().zip(&before) {
        let expected: Vec<f64> = before.iter().map(|x| f64::from(*x as f32 * -0.37)).collect();
        assert_eq!(values(float::<B, 1>(x)), expected);
    }
    for (x, before) in held.into_iter().zip(before.iter().step_by(3)) {
        assert_eq!(&values(x), before);
    }
    // Shared matrices.
    let held = matrices::<B>(6, &device);
    let scaled = ops::scale(held.iter().cloned().map(AnyTensor::from).collect(), factor());
    for (x, held) in scaled.into_iter().zip(held) {
        let expected: Vec<f64> = values(held).iter().map(|x| f64::from(*x as f32 * -0.37)).collect();
        assert_eq!(values(float::<B, 2>(x)), expected);
    }
    // A non-contiguous tensor of rank 3.
    let x = numbers::<B, 3>([3, 5, 7], 3, &device).swap_dims(0, 2);
    let scaled = ops::scale(vec![AnyTensor::from(x.clone())], factor()).remove(0);
    assert_eq!(scaled.shape().to_vec(), [7, 5, 3]);
    assert_eq!(values(float::<B, 3>(scaled)), values(x.mul_scalar(-0.37)));
}

fn scaling_of_16_bits<B: Backend>(device: B::Device) {
    for (dtype, unit) in [(DType::F16, 1.0 / 1024.0), (DType::BF16, 1.0 / 128.0)] {
        if !B::computes_in(&device, dtype) {
            continue;
        }
        let factor = Tensor::<B, 1>::from_floats([-0.375], &device).cast(dtype);
        let leaves: Vec<_> = leaves::<B>(3, &device).into_iter().map(|x| x.cast(dtype)).collect();
        let before: Vec<_> = leaves.iter().map(|x| values(x.clone())).collect();
        let scaled = ops::scale(leaves.into_iter().map(AnyTensor::from).collect(), factor);
        for (x, before) in scaled.into_iter().zip(before) {
            assert_eq!(x.dtype(), dtype);
            for (found, before) in values(float::<B, 1>(x)).into_iter().zip(before) {
                let exact = before * -0.375;
                assert!((found - exact).abs() <= unit * exact.abs().max(1e-3), "{dtype:?}: {found}, and it is {exact}");
            }
        }
    }
}

/// The first of two equal leaves must not be scaled twice, and the second one must be scaled exactly once.
fn scaling_of_one_tensor_twice<B: Backend>(device: B::Device) {
    let x = numbers::<B, 1>([300], 8, &device);
    let expected: Vec<f64> = values(x.clone()).iter().map(|x| x * 0.5).collect();
    let factor = Tensor::<B, 1>::from_floats([0.5], &device);
    let scaled = ops::scale(vec![AnyTensor::from(x.clone()), AnyTensor::from(x)], factor);
    for x in scaled {
        assert_eq!(values(float::<B, 1>(x)), expected);
    }
    // A NaN factor makes all elements NaN.
    let factor = Tensor::<B, 1>::from_floats([f32::NAN], &device);
    let scaled = ops::scale(leaves::<B>(4, &device).into_iter().map(AnyTensor::from).collect(), factor);
    assert!(scaled.into_iter().all(|x| values(float::<B, 1>(x)).iter().all(|x| x.is_nan())));
}

fn adam<B: Backend>(device: B::Device) {
    let numbers = [0.9f32, 0.1, 0.999, 0.001, 1e-8, 0.0, 0.1, 0.001, 0.01, 0.05];
    let trees: Vec<_> = (0..4).map(|i| leaves::<B>(10 + i, &device)).collect();
    let positive = |x: Tensor<B, 1>| x.clone() * x;
    let row = |i: usize| [trees[0][i].clone(), trees[1][i].clone(), trees[2][i].clone(), positive(trees[3][i].clone())];
    let rows: Vec<[Tensor<B, 1>; 4]> = (0..trees[0].len()).map(row).collect();
    let before: Vec<[Vec<f64>; 4]> = rows.iter().map(|row| row.clone().map(values)).collect();
    // Every fifth row is shared.
    let held: Vec<_> = rows.iter().step_by(5).cloned().collect();
    drop(trees);
    let input = rows.into_iter().map(|row| row.map(AnyTensor::from)).collect();
    let after = ops::adam_step(input, Tensor::<B, 1>::from_floats(numbers, &device));
    assert_eq!(after.len(), before.len());
    let n = numbers.map(f64::from);
    for (i, (after, [p, g, mu, nu])) in after.into_iter().zip(&before).enumerate() {
        let after = after.map(|x| values(float::<B, 1>(x)));
        for j in 0..p.len() {
            let (m, v) = (mu[j] * n[0] + g[j] * n[1], nu[j] * n[2] + g[j] * g[j] * n[3]);
            let update = m / n[6] / ((v / n[7] + n[5]).sqrt() + n[4]) + p[j] * n[9];
            for (found, exact) in [(after[0][j], p[j] - update * n[8]), (after[1][j], m), (after[2][j], v)] {
                assert!(
                    (found - exact).abs() <= 2e-6 * exact.abs().max(1.0),
                    "leaf {i}, {j}: {found}, and it is {exact}"
                );
            }
        }
    }
    for (held, before) in held.into_iter().zip(before.iter().step_by(5)) {
        assert_eq!(&held.map(values), before);
    }
    // Matrices give the same results as their flattened elements, with shared and unshared parameters and moments.
    for shared in [false, true] {
        let trees = [40, 41, 42, 43].map(|seed| matrices::<B>(seed, &device));
        let rows = || {
            (0..MATRICES.len())
                .map(|i| [0, 1, 2, 3].map(|j| trees[j][i].clone()))
                .map(|[p, g, mu, nu]| [p, g, mu, nu.abs()])
        };
        let flat: Vec<_> =
            rows().map(|row| row.map(|x| AnyTensor::from(x.reshape::<1, _>([-1]).add_scalar(0.0)))).collect();
        let hyperparameters = || Tensor::<B, 1>::from_floats(numbers, &device);
        let expected = ops::adam_step(flat, hyperparameters());
        let held: Vec<_> = rows().collect();
        let input =
            held.iter().map(|row| row.clone().map(|x| AnyTensor::from(if shared { x } else { x.add_scalar(0.0) })));
        let found = ops::adam_step(input.collect(), hyperparameters());
        for (found, expected) in found.into_iter().zip(expected) {
            let found = found.map(|x| values(float::<B, 2>(x)));
            assert_eq!(found, expected.map(|x| values(float::<B, 1>(x))), "shared: {shared}");
        }
    }
    // The same tensor as all four operands of a leaf with one element.
    let x = Tensor::<B, 1>::from_floats([0.5], &device);
    let leaf = [(); 4].map(|()| AnyTensor::from(x.clone()));
    let leaf = ops::adam_step(vec![leaf], Tensor::<B, 1>::from_floats(numbers, &device)).remove(0);
    let [p, mu, nu] = leaf.map(|x| values(float::<B, 1>(x))[0]);
    let (m, v) = (0.5 * n[0] + 0.5 * n[1], 0.5 * n[2] + 0.25 * n[3]);
    let update = m / n[6] / ((v / n[7]).sqrt() + n[4]) + 0.5 * n[9];
    for (found, exact) in [(p, 0.5 - update * n[8]), (mu, m), (nu, v)] {
        assert!((found - exact).abs() <= 1e-6, "{found}, and it is {exact}");
    }
    assert_eq!(values(x), [0.5]);
}

/// Parameters of 16 bits get the rounded results of f32, whatever the dtype of their gradient.
fn adam_of_16_bits<B: Backend>(device: B::Device) {
    let hyperparameters =
        || Tensor::<B, 1>::from_floats([0.9f32, 0.1, 0.999, 0.001, 1e-8, 0.0, 0.1, 0.001, 0.01, 0.05], &device);
    for dtype in [DType::F16, DType::BF16].into_iter().filter(|dtype| B::computes_in(&device, *dtype)) {
        for (of_params, of_grads) in [(dtype, dtype), (dtype, DType::F32), (DType::F32, dtype)] {
            let trees: Vec<_> = (0..4).map(|i| matrices::<B>(50 + i, &device)).collect();
            // The second leaf is a view of a part of a larger tensor, and its operands are not contiguous.
            let row = |i: usize| {
                let [p, g, mu, nu] = [0, 1, 2, 3].map(|j| trees[j][i].clone());
                let row = [p.cast(of_params), g.cast(of_grads), mu, nu.abs()];
                if i == 1 { row.map(|x| x.narrow(0, 3, 20).swap_dims(0, 1)) } else { row }
            };
            let wide = |row: [Tensor<B, 2>; 4]| row.map(|x| AnyTensor::from(x.cast(DType::F32)));
            let expected = ops::adam_step((0..trees[0].len()).map(|i| wide(row(i))).collect(), hyperparameters());
            let held: Vec<_> = (0..trees[0].len()).map(row).collect();
            let before: Vec<_> = held.iter().map(|row| row.clone().map(values)).collect();
            let input = held.iter().map(|row| row.clone().map(AnyTensor::from)).collect();
            for (found, expected) in ops::adam_step(input, hyperparameters()).into_iter().zip(expected) {
                assert_eq!(found.each_ref().map(AnyTensor::dtype), [of_params, DType::F32, DType::F32]);
                let [p, mu, nu] = expected.map(float::<B, 2>);
                let expected = [ops::to_dtype(p, of_params), mu, nu].map(values);
                assert!(found.map(|x| values(float::<B, 2>(x))) == expected, "{of_params:?}, {of_grads:?}");
            }
            assert!(held.into_iter().map(|row| row.map(values)).eq(before), "shared operands have changed");
        }
    }
}

/// Parts with arbitrary strides, like the gradients of queries, keys and values.
fn joining<B: Backend>(device: B::Device) {
    for (count, axis, [a, b, c, d]) in
        [(1, 0, [2, 3, 4, 5]), (3, 2, [2, 7, 4, 5]), (2, 3, [1, 1, 3, 70]), (4, 0, [3, 2, 1, 9]), (6, 1, [2, 1, 3, 2])]
    {
        for turned in [false, true] {
            let part = |i: usize| match turned {
                true => numbers::<B, 4>([a, c, b, d], i as u64, &device).swap_dims(1, 2),
                false => numbers::<B, 4>([a, b, c, d], i as u64, &device),
            };
            let parts: Vec<_> = (0..count).map(part).collect();
            let expected = Tensor::cat(parts.clone(), axis);
            let joined = ops::concat(parts, axis);
            assert_eq!(joined.dims(), expected.dims());
            assert_eq!(values(joined), values(expected), "{count} parts of axis {axis}, turned {turned}");
        }
    }
}

on_each_backend!(
    squared_norm,
    scaling,
    scaling_of_16_bits,
    scaling_of_one_tensor_twice,
    adam,
    adam_of_16_bits,
    joining
);
