//! Trains a small network to multiply two numbers.

use grove::prelude::*;

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
    let mut state = optimizer.init(&model);
    for i in 0..=500 {
        let key = key.fold_in(1).fold_in(i); // new numbers in each step, the same in each run
        let x = Array::new(key.uniform::<Flex, 2>([64, 2], -1.0, 1.0, &device));
        let (loss, grads) = value_and_grad_with(&model, &x, |model, x| {
            let x = x.val();
            let product = x.clone().narrow(1, 0, 1) * x.clone().narrow(1, 1, 1);
            squared_error(model.forward(x), product).mean()
        });
        (model, state) = optimizer.step(grads, state, model);
        if i % 100 == 0 {
            println!("step {i}: loss {:.6}", loss.into_scalar());
        }
    }
}
