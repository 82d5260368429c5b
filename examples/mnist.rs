//! A multilayer perceptron on handwritten digits: `cargo run --example mnist` takes the 8x8 digits that ship with grove,
//! `cargo run --example mnist -- DIR` a directory with MNIST's own files.

use clap::Parser;
use grove::images::datasets::{read_idx_images, read_idx_labels};
use grove::prelude::*;
use grove::train::data::{Examples, epoch};
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

/// Pixels of an image, from 0 to 1, and its digit.
type Digit = (Vec<f32>, i64);

fn read(options: &Options, part: &str) -> Result<Vec<Digit>, Box<dyn Error>> {
    let images = read_idx_images(options.data.join(format!("{part}-images-idx3-ubyte")))?;
    let labels = read_idx_labels(options.data.join(format!("{part}-labels-idx1-ubyte")))?;
    let pixels = images.pixels.chunks(images.height * images.width);
    let pixels = pixels.map(|image| image.iter().map(|&pixel| f32::from(pixel) / 255.0).collect());
    Ok(pixels.zip(labels.into_iter().map(i64::from)).collect())
}

/// Makes a batch: `[b, pixels]` and `[b]`.
fn collate(digits: &[&Digit]) -> (Tensor<Flex, 2>, Tensor<Flex, 1, Int>) {
    let (pixels, labels): (Vec<_>, Vec<_>) = digits.iter().map(|digit| (digit.0.clone(), digit.1)).unzip();
    let pixels = Tensor::<Flex, 1>::from_floats(&pixels.concat()[..], &Default::default());
    (pixels.reshape([labels.len() as i32, -1]), Tensor::from_ints(&labels[..], &Default::default()))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (options, key) = (Options::parse(), Key::new(0));
    let (training, test) = (read(&options, "train")?, read(&options, "t10k")?);
    let pixels = training[0].0.len();
    let data = Examples::new(training, 64, collate)?.shuffle(key.fold_in(0));

    let mut model =
        Mlp::<Flex> { up: Linear::new(pixels, 128, key.named("up")), down: Linear::new(128, 10, key.named("down")) };
    let optimizer = adamw(1e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    let loss = |model: Mlp<Autodiff<Flex>>, (x, y): &(Tensor<Flex, 2>, Tensor<Flex, 1, Int>), _: Key| {
        cross_entropy(model.forward(Tensor::from_inner(x.clone())), Tensor::from_inner(y.clone()))
    };
    let step = train_step(loss, &optimizer, StepOptions::default());
    for pass in 0..options.epochs {
        for batch in epoch(&data, pass) {
            (model, state, _) = step(model, state, &batch?, key);
        }
    }

    let (x, y) = collate(&test.iter().collect::<Vec<_>>());
    let correct = model.forward(x).argmax(1).reshape([-1]).equal(y).float().mean().into_scalar();
    match options.json {
        true => println!("{}", serde_json::json!({ "accuracy": correct })),
        false => println!("{:.1} % of {} digits are right", 100.0 * correct, test.len()),
    }
    Ok(())
}
