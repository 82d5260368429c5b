//! Microseconds of a gradient of a small function by `value_and_grad` and by Burn itself.

use burn::tensor::Tensor;
use burn_flex::Flex;
use grove_backend::Autodiff;
use grove_transform::value_and_grad;
use grove_tree::Array;
use std::time::Instant;

type A = Autodiff<Flex>;

fn loss(leaves: &[Tensor<A, 1>]) -> Tensor<A, 1> {
    leaves.iter().fold(Tensor::ones([1], &Default::default()), |y, x| (y * x.clone()).tanh())
}

fn main() {
    let values: Vec<Tensor<Flex, 1>> = (0..8).map(|i| Tensor::from_floats([i as f32], &Default::default())).collect();
    let tree: Vec<Array<Flex, 1>> = values.iter().cloned().map(Array::new).collect();
    const CALLS: usize = 2_000;
    for _ in 0..5 {
        let begun = Instant::now();
        for _ in 0..CALLS {
            let leaves: Vec<Tensor<A, 1>> =
                values.iter().map(|x| Tensor::from_inner(x.clone()).require_grad()).collect();
            let mut grads = loss(&leaves).backward();
            let found: Vec<_> = leaves.iter().map(|x| x.grad_remove(&mut grads)).collect();
            drop(found);
        }
        let burn = begun.elapsed().as_secs_f64() / CALLS as f64 * 1e6;
        let begun = Instant::now();
        for _ in 0..CALLS {
            drop(value_and_grad(&tree, |tree| loss(&tree.iter().map(Array::val).collect::<Vec<_>>())));
        }
        let grove = begun.elapsed().as_secs_f64() / CALLS as f64 * 1e6;
        println!("Burn {burn:.1} us, value_and_grad {grove:.1} us");
    }
}
