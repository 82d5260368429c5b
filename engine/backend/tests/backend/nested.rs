//! Higher derivatives: the differentiating backend differentiated.
#![cfg(feature = "flex")]

use burn::tensor::{Tensor, TensorData};
use grove_backend::{
    Autodiff, Backend, Flex, GeluApproximation, GruReset, KeyRanges, Steps,
    ops::{self, AttentionOptions, RecurrentInputs, RowNorm},
};

type Once = Autodiff<Flex>;
type Twice = Autodiff<Once>;

fn numbers<B: Backend>(count: usize) -> Tensor<B, 1> {
    let values: Vec<f32> = (0..count).map(|i| ((i * 7919 + 13) % 17) as f32 / 10.0 - 0.8).collect();
    Tensor::from_data(TensorData::new(values, [count]), &Default::default())
}

/// Checks the gradient of a function's sum, and the directional derivative of the gradient against central differences.
fn check(what: &str, count: usize, f: impl Fn(Tensor<Twice, 1>) -> Tensor<Twice, 1>) {
    let direction = numbers::<Once>(count).mul_scalar(0.3).add_scalar(0.1);
    let gradient = |x: Tensor<Once, 1>| {
        let x = Tensor::<Twice, 1>::from_inner(x).require_grad();
        let y = f(x.clone());
        x.grad(&(y.clone() * y).sum().backward()).expect("a gradient")
    };
    let leaf = numbers::<Once>(count).require_grad();
    let along = (gradient(leaf.clone()) * direction.clone()).sum();
    let found: Vec<f32> = leaf.grad(&along.backward()).expect("a second gradient").into_data().iter().collect();
    // The Hessian is symmetric: its product with the direction is the derivative of the gradient along the direction.
    let at = |step: f32| -> Vec<f32> {
        let x = numbers::<Once>(count) + direction.clone().mul_scalar(step);
        gradient(x).inner().into_data().iter().collect()
    };
    let step = 5e-3;
    let largest = found.iter().fold(1e-3f32, |largest, x| largest.max(x.abs()));
    for ((found, up), down) in found.iter().zip(at(step)).zip(at(-step)) {
        let expected = (up - down) / (2.0 * step);
        assert!((found - expected).abs() <= 2e-2 * largest, "{what}: {found}, and differences give {expected}");
    }
}

#[test]
fn second_derivatives_match_differences() {
    for approximate in [GeluApproximation::None, GeluApproximation::Tanh] {
        check("gelu", 9, |x| ops::gelu(x, approximate));
    }
    check("linear", 16, |x| {
        let (a, b) = (x.clone().narrow(0, 0, 4).reshape([2, 2]), x.narrow(0, 4, 12).reshape([2, 6]));
        ops::linear(a, b, None).reshape([12])
    });
    check("row norm", 12, |x| {
        let weight = x.clone().narrow(0, 0, 4);
        ops::row_norm(x.reshape([3, 4]), weight, None, RowNorm { centred: true, eps: 0.1 }).0.reshape([12])
    });
    check("attention", 24, |x| {
        let [q, k, v] = [0, 8, 16].map(|at| x.clone().narrow(0, at, 8).reshape([1, 1, 4, 2]));
        ops::attention(q, k, v, AttentionOptions::new(0.7, KeyRanges::new(true))).reshape([8])
    });
    check("parts", 12, |x| {
        let parts = ops::chunk(x.reshape([2, 6]), 3, 1);
        (parts[0].clone() * parts[2].clone()).tanh().reshape([4])
    });
    let inputs = |x: &Tensor<Twice, 1>, gates: usize, bias: usize| RecurrentInputs {
        x: x.clone().narrow(0, 0, 6).reshape([3, 2]),
        w_ih: x.clone().narrow(0, 0, 4 * gates).reshape([2 * gates, 2]),
        w_hh: x.clone().narrow(0, 4, 4 * gates).reshape([2 * gates, 2]),
        bias: x.clone().narrow(0, 6, 2 * bias),
    };
    let steps = Steps::new([2, 1], false);
    let state = |x: &Tensor<Twice, 1>| x.clone().narrow(0, 2, 4).reshape([2, 2]);
    check("lstm", 24, |x| ops::lstm(inputs(&x, 4, 4), [state(&x), state(&x)], &steps).reshape([14]));
    check("gru", 24, |x| ops::gru(inputs(&x, 3, 4), state(&x), GruReset::After, &steps).reshape([10]));
}
