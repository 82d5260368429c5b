//! A multilayer perceptron on MNIST's digits.

use grove::{
    images::{ImageError, datasets::read_mnist},
    prelude::*,
};
use std::error::Error;

/// Two linear layers.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<B: Backend> {
    up: Linear<B>,
    down: Linear<B>,
}

impl<B: Backend> Mlp<B> {
    /// Creates a model for images of `pixels` pixels.
    pub fn new(pixels: usize, init: &Init<B>) -> Self {
        Self { up: Linear::new(pixels, 128, init.named("up")), down: Linear::new(128, 10, init.named("down")) }
    }

    /// Computes logits: `[b, pixels]` to `[b, 10]`.
    pub fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        self.down.forward(relu(self.up.forward(x)))
    }
}

/// Pixels of images, `[n, pixels]`, and their digits, `[n]`.
pub type Digits = (Array<Flex, 2>, Array<Flex, 1, Int>);

/// Reads the digits of a part, `train` or `t10k`.
pub fn read(root: &str, part: &str) -> Result<Digits, ImageError> {
    let (digits, device) = (read_mnist(root, part)?, Default::default());
    let pixels = Tensor::<Flex, 1>::from_floats(&digits.pixels[..], &device) / 255.0;
    Ok((Array::new(pixels.reshape([digits.n as i32, -1])), Array::new(Tensor::from_ints(&digits.labels[..], &device))))
}

/// Trains a model on all digits.
pub fn train(root: &str, epochs: u64) -> Result<Mlp<Flex>, Box<dyn Error>> {
    let (key, device) = (Key::new(0), Default::default());
    let (x, y) = read(root, "train")?;
    let mut model = Mlp::<Flex>::new(x.shape()[1], &Init::new(key, &device));
    let data = Examples::from_arrays((x, y), 64)?.shuffle(key);
    let optimizer = adamw(1e-3, Adamw::default());
    let mut state = optimizer.init(&model);
    for epoch in 0..epochs {
        for batch in data.epoch(epoch) {
            let (_loss, grads) =
                value_and_grad_with(&model, &batch?, |model, (x, y)| cross_entropy(model.forward(x.val()), y.val()));
            (model, state) = optimizer.step(grads, state, model);
        }
    }
    Ok(model)
}

/// Returns the accuracy on the test digits.
pub fn evaluate(model: &Mlp<Flex>, root: &str) -> Result<f32, ImageError> {
    let (x, y) = read(root, "t10k")?;
    Ok(accuracy(model.forward(x.val()), y.val()).into_scalar())
}
