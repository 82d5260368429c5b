//! An LSTM that forecasts a time series: `cargo run --example forecast`.

use clap::Parser;
use grove::layers::rnn::{Lstm, RnnOptions};
use grove::prelude::*;

/// Trains an LSTM to predict the next value of a noisy sum of two waves, and continues the series.
#[derive(Parser)]
#[command(name = "forecast", version)]
struct Options {
    /// Number of training steps
    #[arg(long, default_value_t = 200)]
    steps: u32,
    /// Number of values to forecast
    #[arg(long, default_value_t = 60)]
    horizon: usize,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

/// Number of values from which the next one is predicted.
const WINDOW: usize = 30;

#[derive(Tree, Clone, Debug)]
struct Forecast<B: Backend> {
    lstm: Lstm<B>,
    head: Linear<B>,
}

impl<B: Backend> Forecast<B> {
    fn new(key: Key) -> Self {
        let options = RnnOptions { batch_first: true, ..Default::default() };
        Self { lstm: Lstm::new(1, 32, &options, key.named("lstm")), head: Linear::new(32, 1, key.named("head")) }
    }

    /// Predicts the value after each window: `[b, t, 1]` to `[b, 1]`.
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let b = x.dims()[0];
        let (_, [h, _]) = self.lstm.forward(x, None, None); // h: [1, b, 32], after the last step
        self.head.forward(h.val().reshape([b, 32]))
    }
}

fn main() {
    let (options, key, device) = (Options::parse(), Key::new(0), Default::default());
    let wave = |t: usize| (t as f32 / 8.0).sin() + 0.5 * (t as f32 / 3.0).cos();
    let noise = key.named("noise").normal_vec(500);
    let series: Vec<f32> = noise.iter().enumerate().map(|(t, noise)| wave(t) + 0.05 * noise).collect();

    // Windows of WINDOW values, `[n, WINDOW, 1]`, and the value after each, `[n, 1]`.
    let windows = Tensor::<Flex, 1>::from_floats(&series[..], &device).unfold::<2, _>(0, WINDOW + 1, 1);
    let x = windows.clone().narrow(1, 0, WINDOW).unsqueeze_dim(2);
    let batch = (Array::<Flex, 3>::new(x), Array::<Flex, 2>::new(windows.narrow(1, WINDOW, 1)));

    let mut model = Forecast::<Flex>::new(key);
    let optimizer = adamw(1e-2, Adamw::default());
    let mut state = optimizer.init(&model);
    for _ in 0..options.steps {
        let (_loss, grads) =
            value_and_grad_with(&model, &batch, |model, (x, y)| squared_error(model.forward(x.val()), y.val()).mean());
        (model, state) = optimizer.step(grads, state, model);
    }

    // Each prediction becomes the last value of the next window.
    let mut known = series;
    for _ in 0..options.horizon {
        let window = Tensor::<Flex, 1>::from_floats(&known[known.len() - WINDOW..], &device);
        known.push(model.forward(window.reshape([1, WINDOW, 1])).into_scalar());
    }
    let errors = known.iter().enumerate().skip(500).map(|(t, value)| (value - wave(t)).powi(2));
    let error = (errors.sum::<f32>() / options.horizon.max(1) as f32).sqrt();
    match options.json {
        true => println!("{}", serde_json::json!({ "error": error, "forecast": &known[500..] })),
        false => {
            known.iter().enumerate().skip(500).step_by(5).for_each(|(t, value)| {
                println!("{t}: {value:+.2}; the series without noise: {:+.2}", wave(t));
            });
            println!("root mean squared error {error:.3}");
        }
    }
}
