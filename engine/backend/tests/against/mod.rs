//! Comparison of two functions of tensors and their gradients.

use burn::tensor::{Tensor, TensorData};
use grove_backend::{AnyTensor, Autodiff, Backend};

use crate::common;

/// Returns pseudo-random values, the same on every backend.
pub fn numbers<B: Backend, const D: usize>(shape: [usize; D], seed: u64, device: &B::Device) -> Tensor<B, D> {
    let count = shape.iter().product::<usize>() as u64;
    let hash = |i: u64| (i + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let values: Vec<f32> = (0..count).map(|i| hash(i) as f32 / (1 << 23) as f32 - 1.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

pub fn float<B: Backend, const D: usize>(x: AnyTensor<B>) -> Tensor<B, D> {
    x.into_float().expect("a floating-point tensor")
}

/// Returns the values of a tensor, in row-major order.
pub fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().iter().collect()
}

/// A function of flat tensors on the differentiating backend.
pub type Function<'a, B> = &'a dyn Fn(&[Tensor<Autodiff<B>, 1>]) -> Tensor<Autodiff<B>, 1>;

/// Compares the values of two functions and their gradients, for each subset of inputs that need a gradient.
pub fn compare<B: Backend>(what: &str, inputs: &[Tensor<B, 1>], ours: Function<'_, B>, theirs: Function<'_, B>) {
    for needs in 1..1 << inputs.len() {
        let needed = |i: usize| needs >> i & 1 == 1;
        let run = |f: Function<'_, B>| {
            let lift = |(i, x): (usize, &Tensor<B, 1>)| {
                let x = Tensor::<Autodiff<B>, 1>::from_inner(x.clone());
                if needed(i) { x.require_grad() } else { x }
            };
            let inputs: Vec<_> = inputs.iter().enumerate().map(lift).collect();
            let y = f(&inputs);
            let factors = numbers::<Autodiff<B>, 1>(y.dims(), 77, &y.device());
            let grads = (y.clone() * factors).sum().backward();
            let mut found = vec![y.inner().into_data().iter::<f64>().collect::<Vec<_>>()];
            for (_, x) in inputs.iter().enumerate().filter(|(i, _)| needed(*i)) {
                found.push(x.grad(&grads).expect("a gradient").into_data().iter().collect());
            }
            found
        };
        for (part, (a, b)) in run(ours).iter().zip(&run(theirs)).enumerate() {
            let (apart, largest) = common::distance(a, b);
            assert!(apart <= 1e-5 * largest.max(1.0), "{what}, {needs:b}, part {part}: apart by {apart} of {largest}");
        }
    }
}

pub fn flat<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    x.reshape([count])
}
