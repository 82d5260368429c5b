//! Random bits and dropout: bitwise the same on every backend, and equal to a product with a mask from the host.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::numbers;
use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Dropout, dropout, random_bits, threefry};

const KEY: [u32; 2] = [0xDEAD_BEEF, 42];
const SIZES: [usize; 5] = [1, 255, 257, 50_257, 100_000];

fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<u32> {
    x.into_data().convert::<f32>().iter::<f32>().map(f32::to_bits).collect()
}

/// The bits of Threefry-2x32, whose two words are combined as in JAX.
fn bits<B: Backend>(device: B::Device) {
    for size in SIZES {
        let found: Vec<u32> = random_bits::<B, 1>(KEY, [size], &device).into_data().to_vec().expect("numbers of u32");
        let expected: Vec<u32> = (0..size).map(|i| threefry::bits(KEY, threefry::counter(i as u64))).collect();
        assert_eq!(found, expected, "{size}");
    }
    let square = random_bits::<B, 2>(KEY, [5, 7], &device).into_data();
    let row = random_bits::<B, 1>(KEY, [35], &device).into_data();
    assert_eq!((square.shape.to_vec(), square.as_bytes()), (vec![5, 7], row.as_bytes()));
    // Known answer of Threefry-2x32-20, published by the authors of Random123.
    let zero: Vec<u32> = random_bits::<B, 1>([0, 0], [1], &device).into_data().to_vec().expect("numbers of u32");
    assert_eq!(zero, [0x6b20_0159 ^ 0x99ba_4efe]);
}

/// Returns a tensor with NaN, infinities and both signs, in a dtype.
fn input<B: Backend>(size: usize, dtype: DType, device: &B::Device) -> Tensor<B, 1> {
    let mut x: Vec<f32> = numbers::<B, 1>([size], 3, device).into_data().iter().collect();
    for (i, special) in [f32::NAN, f32::INFINITY, -0.0, f32::NEG_INFINITY].into_iter().enumerate() {
        if let Some(x) = x.get_mut(7 * i + 3) {
            *x = special;
        }
    }
    Tensor::<B, 1>::from_data(TensorData::new(x, [size]), device).cast(dtype)
}

/// Compares bits. NaN has many representations, which are treated as equal.
fn same(what: &str, found: &[u32], expected: &[u32]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let (a, b) = (f32::from_bits(found), f32::from_bits(expected));
        assert!(found == expected || a.is_nan() && b.is_nan(), "{what}, element {i}: {a} instead of {b}");
    }
}

fn drop_elements<B: Backend>(device: B::Device) {
    for dtype in [DType::F32, DType::F16, DType::BF16].into_iter().filter(|dtype| B::computes_in(&device, *dtype)) {
        for (size, rate) in SIZES.into_iter().flat_map(|size| [0.1, 0.5, 1.0].map(|rate| (size, rate))) {
            let drop = Dropout::new(KEY, rate).expect("a rate above 0");
            let factors = TensorData::new(drop.factors(size), [size]);
            let factors = || Tensor::<B, 1>::from_data(factors.clone(), &device).cast(dtype);
            let x = || input::<B>(size, dtype, &device);
            let what = format!("{dtype:?}, {size} elements, rate {rate}");
            // An unshared input, and a shared one.
            let held = x();
            let expected = values(x() * factors());
            same(&what, &values(dropout(x(), drop)), &expected);
            same(&what, &values(dropout(held.clone(), drop)), &expected);
            same(&what, &values(held), &values(x()));

            let leaf = Tensor::<Autodiff<B>, 1>::from_inner(x()).require_grad();
            let slopes = numbers::<B, 1>([size], 5, &device).cast(dtype);
            let y = dropout(leaf.clone(), drop);
            same(&what, &values(y.clone().inner()), &expected);
            let grads = (y * Tensor::from_inner(slopes.clone())).cast(DType::F32).sum().backward();
            let grad = leaf.grad(&grads).expect("a gradient");
            same(&format!("{what}, gradient"), &values(grad), &values(slopes * factors()));
        }
    }
    assert!(Dropout::new(KEY, 0.0).is_none());
}

/// Elements are counted in row-major order, whatever their layout in memory.
fn drop_views<B: Backend>(device: B::Device) {
    let drop = Dropout::new(KEY, 0.5).expect("a rate above 0");
    let x = numbers::<B, 3>([4, 6, 5], 1, &device);
    let factors = Tensor::<B, 1>::from_data(TensorData::new(drop.factors(120), [120]), &device);
    let views = [x.clone().swap_dims(0, 2), x.clone().permute([1, 2, 0]), x.clone().slice([1..3, 2..6, 0..5])];
    for (i, view) in views.into_iter().chain([x.narrow(0, 1, 1).expand([3, 6, 5])]).enumerate() {
        let (shape, count) = (view.dims(), view.shape().num_elements());
        let expected = view.clone() * factors.clone().narrow(0, 0, count).reshape(shape);
        assert_eq!(values(dropout(view, drop)), values(expected), "view {i}");
    }
}

on_each_backend!(bits, drop_elements, drop_views);
