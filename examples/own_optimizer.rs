//! A custom optimizer: `cargo run --example own_optimizer` compares it with SGD and AdamW on a regression.

use clap::Parser;
use grove::optim::{elementwise, gradient_transformation, scale_by_learning_rate, zeros_like};
use grove::prelude::*;

/// Trains the same network with three optimizers, one of them custom.
#[derive(Parser)]
#[command(name = "own_optimizer", version)]
struct Options {
    /// Number of training steps
    #[arg(long, default_value_t = 300)]
    steps: u32,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// Lion (Chen et al., 2023): replaces each gradient by the sign of a mean of the gradient and the momentum. The state is the
/// momentum, a tree of the shape of the parameters.
fn scale_by_lion<B: Backend, P: Tree<B>>(b1: f64, b2: f64) -> impl GradientTransformation<B, P> {
    gradient_transformation(zeros_like, move |updates: P, momentum, _params| {
        let step = |[gradient, momentum]: [Tensor<B, 1>; 2]| {
            let mean = momentum.clone() * b1 + gradient.clone() * (1.0 - b1);
            [mean.sign(), momentum * b2 + gradient * (1.0 - b2)]
        };
        elementwise([updates, momentum], step).into()
    })
}

/// Two linear layers.
type Mlp<B> = (Linear<B>, Linear<B>);

/// Trains a network and returns its last loss.
fn train(optimizer: impl GradientTransformation<Flex, Mlp<Flex>>, steps: u32) -> f32 {
    let key = Key::new(0);
    let x = key.named("x").normal::<Flex, 2>([256, 4], &Default::default());
    let batch = (Array::new(x.clone()), Array::new(x.sin().sum_dim(1)));
    let mut model: Mlp<Flex> = (Linear::new(4, 32, key.named("up")), Linear::new(32, 1, key.named("down")));
    let mut state = optimizer.init(&model);
    let mut last = f32::NAN;
    for _ in 0..steps {
        let (loss, grads) = value_and_grad_with(&model, &batch, |(up, down), (x, y)| {
            squared_error(down.forward(tanh(up.forward(x.val()))), y.val()).mean()
        });
        (model, state) = optimizer.step(grads, state, model);
        last = loss.into_scalar();
    }
    last
}

fn main() {
    let options = Options::parse();
    // A chain: the custom transformation, then the learning rate with its schedule.
    let decayed = |step: u64| 3e-3 * 0.99f64.powi(step as i32);
    let lion = chain((scale_by_lion(0.9, 0.99), scale_by_learning_rate(decayed)));
    let losses = [
        ("lion", train(lion, options.steps)),
        ("sgd", train(sgd(1e-2, Sgd::default()), options.steps)),
        ("adamw", train(adamw(3e-3, Adamw::default()), options.steps)),
    ];
    match options.json {
        true => println!("{}", serde_json::json!({ "losses": losses })),
        false => {
            losses.iter().for_each(|(name, loss)| println!("{name}: loss {loss:.5} after {} steps", options.steps))
        }
    }
}
