//! A multilayer perceptron on handwritten digits: `cargo run --example mnist` trains on the 8x8 digits that ship with
//! grove, `cargo run --example mnist -- DIR` on MNIST's own files.

use clap::Parser;
use grove::images::datasets::read_mnist;
use grove::prelude::*;
use std::{error::Error, path::PathBuf};

/// Trains a multilayer perceptron on MNIST.
#[derive(Parser)]
#[command(name = "mnist", version)]
struct Options {
    /// Directory with train-images-idx3-ubyte, train-labels-idx1-ubyte and the two t10k files
    #[arg(default_value = "models/assets/digits")]
    data: PathBuf,
    /// Number of passes over the data
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

#[derive(Tree, Clone, Debug)]
struct Mlp<B: Backend> {
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    /// Computes logits: `[b, pixels]` to `[b, 10]`.
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.down.forward(relu(self.up.forward(x)))
    }
}

/// Pixels of images, from 0 to 1, `[n, pixels]`, and their digits, `[n]`.
type Digits = (Tensor<Flex, 2>, Tensor<Flex, 1, Int>);

/// Reads a part of the data.
fn read(options: &Options, part: &str) -> Result<Digits, Box<dyn Error>> {
    let (digits, device) = (read_mnist(&options.data, part)?, Default::default());
    let pixels = Tensor::<Flex, 1>::from_floats(&digits.pixels[..], &device) / 255.0;
    Ok((pixels.reshape([digits.n as i32, -1]), Tensor::from_ints(&digits.labels[..], &device)))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, key) = (Options::parse(), Key::new(0));
    let ((x, y), (x_test, y_test)) = (read(&options, "train")?, read(&options, "t10k")?);
    let [_, pixels] = x.dims();
    let data = Examples::from_arrays((Array::new(x), Array::new(y)), 64)?.shuffle(key.fold_in(0));

    let mut model =
        Mlp::<Flex> { up: Linear::new(pixels, 128, key.named("up")), down: Linear::new(128, 10, key.named("down")) };
    let optimizer = adamw(1e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    for epoch in 0..options.epochs {
        for batch in data.epoch(epoch) {
            let (_loss, grads) =
                value_and_grad_with(&model, &batch?, |model, (x, y)| cross_entropy(model.forward(x.val()), y.val()));
            (model, state) = optimizer.step(grads, state, model);
        }
    }

    let [count] = y_test.dims();
    let accuracy = accuracy(model.forward(x_test), y_test).into_scalar();
    match options.json {
        true => println!("{}", serde_json::json!({ "accuracy": accuracy })),
        false => println!("{:.1} % of {count} digits are right", 100.0 * accuracy),
    }
    Ok(())
}
