//! Trains a small network to multiply two numbers.

use grove::{layers::activation::gelu, prelude::*};

#[derive(Tree, Clone, Debug)]
struct Mlp<B: Backend> {
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    fn init(hidden: usize, init: &Init<B>) -> Self {
        let up = Linear::new(2, hidden, init.named("up"));
        Self { up, down: Linear::new(hidden, 1, init.named("down")) }
    }

    /// Input `[b, 2]`, output `[b, 1]`.
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.down.forward(gelu(self.up.forward(x)))
    }
}

fn main() {
    let (key, device) = (Key::new(0), Default::default());
    let mut model = Mlp::<Flex>::init(32, &Init::new(key.fold_in(0), &device));
    let optimizer = adamw(1e-2, Adamw::default());
    let loss = |model: Mlp<Autodiff<Flex>>, x: &Tensor<Flex, 2>, _| {
        let x = Tensor::from_inner(x.clone());
        let product = x.clone().narrow(1, 0, 1) * x.clone().narrow(1, 1, 1);
        (model.forward(x) - product).square().mean()
    };
    let step = train_step(loss, &optimizer, StepOptions::default());
    let mut state = optimizer.init(&model);
    for i in 0..=500 {
        let key = key.fold_in(1).fold_in(i); // new numbers in each step, the same in each run
        let x = key.uniform([64, 2], -1.0, 1.0, &device);
        let metrics;
        (model, state, metrics) = step(model, state, &x, key);
        if i % 100 == 0 {
            println!("step {i}: loss {:.6}", metrics.loss.val().into_scalar());
        }
    }
}
