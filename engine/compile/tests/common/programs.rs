//! Random programs.

use burn::tensor::Tensor;
use grove_backend::{Backend, GeluApproximation, ops};
use grove_compile::Traced;
use grove_tree::{Array, Key};

/// One operation: its code, and the positions of its operands among the previous values, counted from the last one.
pub type Code = (u8, u8, u8);

/// Runs a program on a matrix `[4, 24]`, a row `[1, 24]`, a column `[4, 1]` and a scalar `[1, 1]`.
pub fn run<B: Backend>(codes: &[Code], inputs: [Tensor<B, 2>; 4]) -> Vec<Tensor<B, 2>> {
    let mut values: Vec<_> = inputs.to_vec();
    for &(op, a, b) in codes {
        let at = |i: u8| values[values.len() - 1 - usize::from(i) % values.len()].clone();
        let (a, b) = (at(a), at(b));
        values.push(match op % 20 {
            0 => a + b,
            1 => a - b,
            2 => a * b,
            3 => a / (b.abs() + 1.0),
            4 => a.tanh(),
            5 => a.clamp(-3.0, 3.0).exp(),
            6 => a * 0.5 + 1.0,
            7 => (a.square() + 1.0).sqrt(),
            8 => (a.abs() + 0.5).log(),
            9 => a.clamp(-1.0, 2.0),
            10 => a.clone().mask_fill(a.greater_elem(0.3), -0.25),
            11 => {
                let (a, b) = (a.clone() + b.clone() * 0.0, b + a * 0.0);
                b.clone().mask_where(a.clone().lower(b), a)
            }
            12 => a.clone().greater_equal(a.clone().abs()).float() + a,
            13 => a.clone().sum_dim(1) + a,
            14 => a.clone().max_dim(0) * 0.5 + a,
            15 => ops::gelu(a, GeluApproximation::Tanh),
            16 => ops::selu(a) * 0.5,
            17 => a.powi_scalar(3) * 0.01,
            18 => a.erf() + b,
            _ => a.clamp(-2.0, 2.0).sin() * b.cos(),
        });
    }
    values.split_off(4)
}

/// Returns the arguments of a program for a seed.
pub fn inputs<B: Backend>(seed: u64) -> [Array<B, 2>; 4] {
    let mut keys = Key::new(seed).split_n(4).into_iter();
    [[4, 24], [1, 24], [4, 1], [1, 1]]
        .map(|shape| Array::new(keys.next().unwrap().uniform(shape, -1.5, 1.5, &Default::default())))
}

/// Arguments of a program.
pub type Four = [Array<Traced, 2>; 4];

/// Returns a program as a function of arrays.
pub fn program(codes: &[Code]) -> impl Fn(Four) -> Vec<Array<Traced, 2>> + '_ {
    move |inputs| run(codes, inputs.map(|x| x.val())).into_iter().map(Array::new).collect()
}
