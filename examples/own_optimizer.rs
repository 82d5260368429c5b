//! An optimizer of one's own: `cargo run --example own_optimizer` compares it with SGD and AdamW on a regression.

use clap::Parser;
use grove::optim::{elementwise, scale_by_learning_rate, zeros_like};
use grove::prelude::*;

/// Trains the same network with three optimizers, one of which the example defines.
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

/// Signum (Bernstein et al., 2018): replaces each gradient by the sign of its moving average. The state is that average, a
/// tree of the shape of the parameters.
struct ScaleBySignum {
    decay: f64,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleBySignum {
    type State = P;

    fn init(&self, params: &P) -> P {
        zeros_like(params)
    }

    fn update(&self, updates: P, average: P, _params: &P) -> (P, P) {
        let [updates, average] = elementwise([updates, average], |[gradient, average]| {
            let average = average * self.decay + gradient * (1.0 - self.decay);
            [average.clone().sign(), average]
        });
        (updates, average)
    }
}

/// Two linear layers.
type Mlp<B> = (Linear<B>, Linear<B>);

/// Trains a network and returns its last loss.
fn train(optimizer: impl GradientTransformation<Flex, Mlp<Flex>>, steps: u32) -> f32 {
    let key = Key::new(0);
    let x = key.named("x").normal::<Flex, 2>([256, 4], &Default::default());
    let y = x.clone().sin().sum_dim(1);
    let mut model: Mlp<Flex> = (Linear::new(4, 32, key.named("up")), Linear::new(32, 1, key.named("down")));
    let mut state = optimizer.init(&model);
    let loss = |(up, down): Mlp<Autodiff<Flex>>, (x, y): &(Tensor<Flex, 2>, Tensor<Flex, 2>), _: Key| {
        let y_hat = down.forward(tanh(up.forward(Tensor::from_inner(x.clone()))));
        (y_hat - Tensor::from_inner(y.clone())).square().mean()
    };
    let step = train_step(loss, &optimizer, StepOptions::default());
    let (batch, mut last) = ((x, y), f32::NAN);
    for _ in 0..steps {
        let metrics;
        (model, state, metrics) = step(model, state, &batch, key);
        last = metrics.loss.val().into_scalar();
    }
    last
}

fn main() {
    let options = Options::parse();
    // A chain: its own transformation, then the learning rate with its schedule.
    let decayed = |step: u64| 3e-3 * 0.99f64.powi(step as i32);
    let signum = chain((ScaleBySignum { decay: 0.9 }, scale_by_learning_rate(decayed)));
    let losses = [
        ("signum", train(signum, options.steps)),
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
