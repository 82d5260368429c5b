//! LSTM and GRU layers with their backward passes on every backend against flex, over packed batches.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::numbers;
use crate::common;
use burn::tensor::{DType, Tensor};
use grove_backend::{
    Autodiff, Backend, Flex, GruReset, Steps,
    ops::{self, RecurrentInputs},
};

#[derive(Clone, Copy, Debug)]
enum Layer {
    Lstm,
    Gru(GruReset),
}

/// Sizes of inputs and hidden units, number of sequences at each step, and direction.
type Case = (usize, usize, &'static [usize], bool);

const CASES: [Case; 5] = [
    (3, 5, &[1, 1, 1], false),
    (4, 7, &[3, 3, 2, 1], false),
    (4, 7, &[3, 3, 2, 1], true),
    // More sequences than a cube processes, and more terms than a tile.
    (6, 37, &[19, 19, 17, 2], true),
    (6, 40, &[18, 16, 16], false),
];

/// Returns the results without and with residuals for a backward pass, and the gradients of all inputs. The inputs are
/// rounded to a dtype.
fn run<B: Backend>(layer: Layer, case: Case, [rounded, dtype]: [DType; 2], device: &B::Device) -> Vec<Vec<f64>> {
    let (inputs, n, sizes, reverse) = case;
    let steps = Steps::new(sizes.to_vec(), reverse);
    let (gates, states) = match layer {
        Layer::Lstm => (4, 2),
        Layer::Gru(_) => (3, 1),
    };
    // Rounding errors grow with the weights from step to step.
    let scale = if rounded == DType::F32 { 0.5 } else { 0.1 };
    let leaf = |shape: [usize; 2], seed| {
        let x = numbers::<B, 2>(shape, seed, device).mul_scalar(scale).cast(rounded).cast(dtype);
        Tensor::<Autodiff<B>, 2>::from_inner(x).require_grad()
    };
    let mut leaves = vec![
        leaf([steps.rows(), inputs], 1),
        leaf([gates * n, inputs], 2),
        leaf([gates * n, n], 3),
        leaf([1, 4 * n], 4),
    ];
    leaves.extend((0..states).map(|i| leaf([steps.batch(), n], 5 + i)));
    let layer_of = |leaves: &[Tensor<Autodiff<B>, 2>]| {
        let [x, w_ih, w_hh] = [0, 1, 2].map(|i| leaves[i].clone());
        let inputs = RecurrentInputs { x, w_ih, w_hh, bias: leaves[3].clone().reshape([4 * n]) };
        match layer {
            Layer::Lstm => ops::lstm(inputs, [leaves[4].clone(), leaves[5].clone()], &steps),
            Layer::Gru(reset) => ops::gru(inputs, leaves[4].clone(), reset, &steps),
        }
    };
    let list = |x: Tensor<B, 2>| x.into_data().iter().collect::<Vec<f64>>();
    let untracked: Vec<_> = leaves.iter().map(|leaf| leaf.clone().detach()).collect();
    let inference = layer_of(&untracked);
    let y = layer_of(&leaves);
    let factors = Tensor::from_inner(numbers::<B, 2>(y.dims(), 77, device).cast(rounded).cast(dtype));
    let grads = (y.clone() * factors).cast(DType::F32).sum().backward(); // candle would sum in 16 bits
    let mut found = vec![list(inference.inner()), list(y.inner())];
    found.extend(leaves.iter().map(|leaf| list(leaf.grad(&grads).expect("a gradient"))));
    found
}

fn same<B: Backend>(layer: Layer, dtype: DType, tolerance: f64, device: &B::Device) {
    for case in CASES {
        let expected = run::<Flex>(layer, case, [dtype, DType::F32], &Default::default());
        let found = run::<B>(layer, case, [dtype, dtype], device);
        for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
            let (apart, largest) = common::distance(found, expected);
            assert!(apart <= tolerance * largest, "{layer:?} {case:?} {dtype:?}, {i}: apart by {apart} of {largest}");
        }
    }
}

const LAYERS: [Layer; 3] = [Layer::Lstm, Layer::Gru(GruReset::After), Layer::Gru(GruReset::Before)];

fn layers<B: Backend>(device: B::Device) {
    for layer in LAYERS {
        same::<B>(layer, DType::F32, 1e-5, &device);
    }
}

/// States are rounded between steps, and results at the end.
fn layers_of_16_bits<B: Backend>(device: B::Device) {
    for (dtype, tolerance) in [(DType::F16, 0.01), (DType::BF16, 0.08)] {
        if B::computes_in(&device, dtype) {
            for layer in LAYERS {
                same::<B>(layer, dtype, tolerance, &device);
            }
        }
    }
}

on_each_backend!(layers, layers_of_16_bits);
