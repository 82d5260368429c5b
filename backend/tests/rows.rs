//! Operations on rows: kernels and exact backward passes against the same mathematics written with Burn's operations,
//! which Burn differentiates. (What torch gives is compared where layers use them.)
#![recursion_limit = "256"]
#![cfg(all(feature = "flex", feature = "candle"))]

use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive, activation};
use grove_backend::{Autodiff, Backend};

#[macro_use]
mod common;

/// Numbers without order, the same on every backend.
fn numbers<B: Backend, const D: usize>(shape: [usize; D], seed: u64, device: &B::Device) -> Tensor<B, D> {
    let count = shape.iter().product::<usize>() as u64;
    let hash = |i: u64| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let values: Vec<f32> = (0..count).map(|i| hash(i) as f32 / (1 << 23) as f32 * 3.0 - 3.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

fn float<B: Backend, const D: usize>(x: burn::tensor::ops::FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

/// Values and gradients of two functions of one tensor, which is also given transposed and with an offset.
fn compare<B: Backend, const D: usize>(
    what: &str,
    x: Tensor<Autodiff<B>, D>,
    ours: impl Fn(Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, 1>,
    theirs: impl Fn(Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, 1>,
) {
    let run = |f: &dyn Fn(Tensor<Autodiff<B>, D>) -> Tensor<Autodiff<B>, 1>| {
        let x = x.clone().require_grad();
        let y = f(x.clone());
        let factors = numbers::<Autodiff<B>, 1>(y.dims(), 77, &x.device());
        let grad = x.grad(&(y.clone() * factors).sum().backward()).expect("a gradient");
        [y.inner().into_data().iter::<f64>().collect::<Vec<_>>(), grad.into_data().iter().collect()]
    };
    for (part, (a, b)) in ["values", "gradient"].iter().zip(run(&ours).iter().zip(&run(&theirs))) {
        let (apart, largest) = common::distance(a, b);
        assert!(apart <= 1e-5 * largest.max(1.0), "{what}, {part}: apart by {apart}, largest {largest}");
    }
}

fn attention_weights<B: Backend>(device: B::Device) {
    for (shape, causal) in [
        ([1, 1, 1, 1], true),
        ([2, 3, 5, 5], true),
        ([2, 1, 3, 9], true),
        ([2, 2, 4, 33], false),
        ([1, 2, 70, 70], true),
    ] {
        let [_, _, t, s] = shape;
        let ours = |x: Tensor<Autodiff<B>, 4>| {
            let weights = <Autodiff<B>>::attention_weights(x.into_primitive().tensor(), 0.3, causal);
            let weights = float::<Autodiff<B>, 4>(weights);
            weights.clone().reshape([weights.shape().num_elements()])
        };
        let theirs = |x: Tensor<Autodiff<B>, 4>| {
            let hidden: Vec<i64> = (0..t * s).map(|i| i64::from(causal && i % s > i / s + s - t)).collect();
            let hidden = Tensor::<Autodiff<B>, 4, Int>::from_data(TensorData::new(hidden, [1, 1, t, s]), &x.device());
            let hidden: Tensor<Autodiff<B>, 4, Bool> = hidden.equal_elem(1).expand(x.dims());
            let weights = activation::softmax(x.mul_scalar(0.3).mask_fill(hidden, f32::NEG_INFINITY), 3);
            weights.clone().reshape([weights.shape().num_elements()])
        };
        compare(&format!("{shape:?}"), numbers::<Autodiff<B>, 4>(shape, 1, &device), ours, theirs);
        if t == s {
            let transposed = |x: Tensor<Autodiff<B>, 4>| x.swap_dims(2, 3);
            let x = numbers::<Autodiff<B>, 4>(shape, 2, &device);
            compare("transposed", x, |x| ours(transposed(x)), |x| theirs(transposed(x)));
        }
    }
}

fn normalize<B: Backend>(device: B::Device) {
    for shape in [[1, 1], [3, 5], [33, 192], [7, 17]] {
        let ours = |x: Tensor<Autodiff<B>, 2>| {
            let (y, inverse_std) = <Autodiff<B>>::normalize(x.clone().into_primitive().tensor(), 1e-5);
            let inverse_std = float::<Autodiff<B>, 2>(inverse_std).inner();
            let expected = x.inner().var_bias(1).add_scalar(1e-5).sqrt().recip();
            let [a, b] = [inverse_std, expected].map(|x| x.into_data().iter::<f64>().collect::<Vec<_>>());
            let (apart, largest) = common::distance(&a, &b);
            assert!(apart <= 1e-5 * largest, "inverse roots apart by {apart}");
            float::<Autodiff<B>, 2>(y).reshape([shape[0] * shape[1]])
        };
        let theirs = |x: Tensor<Autodiff<B>, 2>| {
            let centred = x.clone() - x.mean_dim(1);
            let std = centred.clone().powi_scalar(2).mean_dim(1).add_scalar(1e-5).sqrt();
            (centred / std).reshape([shape[0] * shape[1]])
        };
        compare(&format!("{shape:?}"), numbers::<Autodiff<B>, 2>(shape, 3, &device), ours, theirs);
        let part = |x: Tensor<Autodiff<B>, 2>| x.slice([2..2 + shape[0], 1..1 + shape[1]]);
        let x = numbers::<Autodiff<B>, 2>([shape[0] + 3, shape[1] + 2], 4, &device);
        compare("a part", x, |x| ours(part(x)), |x| theirs(part(x)));
    }
}

fn nll<B: Backend>(device: B::Device) {
    for shape in [[1, 1], [4, 7], [130, 61], [2, 3000]] {
        let labels: Vec<i64> = (0..shape[0] as i64).map(|i| i * 31 % shape[1] as i64).collect();
        let labels = Tensor::<Autodiff<B>, 1, Int>::from_data(TensorData::new(labels, [shape[0]]), &device);
        let ours = |x: Tensor<Autodiff<B>, 2>| {
            float::<Autodiff<B>, 1>(<Autodiff<B>>::nll(x.into_primitive().tensor(), labels.clone().into_primitive()).0)
        };
        let theirs = |x: Tensor<Autodiff<B>, 2>| {
            let labels = labels.clone().reshape([shape[0], 1]);
            activation::log_softmax(x, 1).gather(1, labels).neg().reshape([shape[0]])
        };
        compare(&format!("{shape:?}"), numbers::<Autodiff<B>, 2>(shape, 5, &device).mul_scalar(3.0), ours, theirs);
        let turned = numbers::<Autodiff<B>, 2>([shape[1], shape[0]], 6, &device);
        compare("transposed", turned, |x| ours(x.swap_dims(0, 1)), |x| theirs(x.swap_dims(0, 1)));
    }
}

on_each_backend!(attention_weights, normalize, nll);
