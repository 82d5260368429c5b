//! Layers as a loop: equal to the layers in sequence, forward and in training, with the graph of a single layer.

use crate::common;
use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend, Flex};
use grove_compile::{Shared, Traced, jit, scan_layers, vmap};
use grove_layers::{LayerNorm, Linear, activation::gelu};
use grove_transform::{Stacked, value_and_grad};
use grove_tree::{Array, Init, Key, Tree};

type B = Flex;

#[derive(Tree, Clone)]
struct Block<B: Backend> {
    norm: LayerNorm<B>,
    up: Linear<B>,
    down: Linear<B>,
    scale: f64,
}

impl<B: Backend> Block<B> {
    fn new(init: &Init<B>) -> Self {
        Self {
            norm: LayerNorm::new(6, 1e-5, init),
            up: Linear::new(6, 12, init.named("up")),
            down: Linear::new(12, 6, init.named("down")),
            scale: 0.5,
        }
    }

    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let y = self.down.forward(gelu(self.up.forward(self.norm.forward(x.clone()))));
        x + y * self.scale
    }
}

fn one_by_one<B: Backend>(layers: Vec<Block<B>>, x: Tensor<B, 2>) -> Tensor<B, 2> {
    layers.iter().fold(x, |x, layer| layer.forward(x))
}

fn as_a_loop<B: Backend>(layers: Stacked<B, Block<B>>, x: Tensor<B, 2>) -> Tensor<B, 2> {
    scan_layers(layers, Array::<B, 2>::new(x), |layer, x| Array::new(layer.forward(x.val()))).val()
}

type Step<B> = (Array<B, 1>, Stacked<B, Block<B>>);

fn loss_and_grads<B: Backend>(layers: Stacked<B, Block<B>>, x: Array<B, 2>) -> Step<B> {
    let (loss, grads) = value_and_grad(&layers, |layers: Stacked<Autodiff<B>, Block<Autodiff<B>>>| {
        as_a_loop(layers, Tensor::from_inner(x.val())).square().mean()
    });
    (Array::new(loss), grads)
}

fn blocks(n: u32) -> Vec<Block<B>> {
    (0..n).map(|i| Block::new(&Init::new(Key::new(3).fold_in(i), &Default::default()))).collect()
}

fn x() -> Array<B, 2> {
    Array::new(Key::new(9).normal([4, 6], &Default::default()))
}

#[test]
fn forward() {
    let layers = blocks(5);
    let expected = Array::<B, 2>::new(one_by_one(layers.clone(), x().val()));
    let stacked = Stacked::new(layers);
    let eager = Array::<B, 2>::new(as_a_loop(stacked.clone(), x().val()));
    common::same::<B, _>("eager", &eager, &expected, 0.0, 1.0);
    let jitted = jit(|(layers, x): (Stacked<Traced, Block<Traced>>, Array<Traced, 2>)| {
        Array::<_, 2>::new(as_a_loop(layers, x.val()))
    });
    common::same::<B, _>("jitted", &jitted.call::<B>((stacked, x())), &expected, 1e-6, 1.0);
    let deep = Stacked::new(blocks(40));
    let expected = Array::<B, 2>::new(one_by_one(deep.clone().unstack(), x().val()));
    common::same::<B, _>("deep", &jitted.call::<B>((deep, x())), &expected, 1e-5, 1.0);
    // The graph does not grow with the number of layers.
    let graphs = jitted.graphs();
    assert_eq!(graphs[0].equations().len(), graphs[1].equations().len());
    assert_eq!(graphs[0].counts().get("scan"), Some(&1));
    assert!(graphs[0].cost().total.flops > 7 * graphs[1].cost().total.flops);
}

#[test]
fn gradients() {
    let stacked = Stacked::new(blocks(5));
    let (loss, grads) = value_and_grad(&stacked, |layers: Stacked<Autodiff<B>, Block<Autodiff<B>>>| {
        one_by_one(layers.unstack(), Tensor::from_inner(x().val())).square().mean()
    });
    let expected = (Array::new(loss), grads);
    common::same::<B, _>("eager", &loss_and_grads(stacked.clone(), x()), &expected, 1e-6, 1e-3);
    let jitted = jit(|(layers, x): (Stacked<Traced, Block<Traced>>, Array<Traced, 2>)| loss_and_grads(layers, x));
    common::same::<B, _>("jitted", &jitted.call::<B>((stacked, x())), &expected, 1e-5, 1e-3);
    assert_eq!(jitted.graph().unwrap().counts().get("scan"), Some(&2), "{}", jitted.graph().unwrap());
}

#[test]
fn mapped() {
    let stacked = Stacked::new(blocks(3));
    let mapped = vmap(|(layers, x): (Stacked<Traced, Block<Traced>>, Array<Traced, 1>)| {
        let x = x.val().unsqueeze::<2>();
        Array::<_, 1>::new(as_a_loop(layers, x).squeeze_dim::<1>(0))
    });
    let found = mapped.call::<B, _>((Shared(stacked.clone()), x()));
    let expected = Array::<B, 2>::new(as_a_loop(stacked, x().val()));
    common::same::<B, _>("mapped", &found, &expected, 1e-6, 1.0);
}
