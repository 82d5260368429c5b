//! GELU and its derivative against torch. Fixture: tools/fixtures/gelu.py.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::common;
use burn::tensor::{Tensor, TensorData};
use grove_backend::{Autodiff, Backend, GeluApproximation, ops};
use std::{collections::HashMap, path::Path};

fn fixture() -> HashMap<String, Vec<f64>> {
    let file = Path::new("tests/fixtures/gelu.json");
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

/// The tolerance is 1e-5 on CPU backends, and 1e-4 of the largest value on GPUs, whose tanh and exp are approximations.
fn assert_close<B: Backend>(what: &str, device: &B::Device, a: Tensor<B, 1>, b: &[f64]) {
    let a: Vec<f64> = a.into_data().iter().collect();
    let (apart, largest) = common::distance(&a, b);
    let name = B::name(device);
    let tolerance = if name.contains("wgpu") { 1e-4 * largest } else { 1e-5 };
    println!("{name} {what}: apart by {apart:.1e}");
    assert!(apart <= tolerance, "{name} {what}: apart by {apart}");
}

fn matches_torch<B: Backend>(device: B::Device) {
    let fixture = fixture();
    let numbers: Vec<f32> = fixture["x"].iter().map(|&x| x as f32).collect();
    let data = || TensorData::new(numbers.clone(), [numbers.len()]);
    for (form, approximate) in [("erf", GeluApproximation::None), ("tanh", GeluApproximation::Tanh)] {
        let y = ops::gelu(Tensor::<B, 1>::from_data(data(), &device), approximate);
        assert_close(form, &device, y, &fixture[form]);

        // The derivative times an alternating factor: 1, 1.5, 1, 1.5, …
        let factors: Vec<f32> = (0..numbers.len()).map(|i| if i % 2 == 0 { 1.0 } else { 1.5 }).collect();
        let x = Tensor::<Autodiff<B>, 1>::from_data(data(), &device).require_grad();
        let y = ops::gelu(x.clone(), approximate);
        assert_close(&format!("{form} under differentiation"), &device, y.clone().inner(), &fixture[form]);
        let dy = Tensor::<Autodiff<B>, 1>::from_data(TensorData::from(&*factors), &device);
        let grad = x.grad(&(y * dy).sum().backward()).unwrap();
        let derivative = format!("{form}_derivative");
        let expected: Vec<f64> = fixture[&derivative].iter().zip(&factors).map(|(d, &f)| d * f64::from(f)).collect();
        assert_close(&derivative, &device, grad, &expected);
    }
}

/// Far from zero the result is exact, and nothing overflows.
fn tails_are_exact<B: Backend>(device: B::Device) {
    let far = [-1e4f32, -100.0, 0.0, 100.0, 1e4];
    for approximate in [GeluApproximation::None, GeluApproximation::Tanh] {
        let x = Tensor::<Autodiff<B>, 1>::from_data(far, &device).require_grad();
        let y = ops::gelu(x.clone(), approximate);
        let grad = x.grad(&y.clone().sum().backward()).unwrap();
        assert_close("tails", &device, y.inner(), &[0.0, 0.0, 0.0, 100.0, 1e4]);
        assert_close("tails' derivative", &device, grad, &[0.0, 0.0, 0.5, 1.0, 1.0]);
    }
}

on_each_backend!(matches_torch, tails_are_exact);
