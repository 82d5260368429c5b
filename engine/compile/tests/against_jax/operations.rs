//! Operations of random programs that have no nested programs.

use burn::tensor::{IndexingUpdateOp, Int, Tensor, activation};
use grove_backend::{Backend, ops};
use grove_compile::associative_scan;
use grove_tree::{Array, Key};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::{arrays::ints, programs::Body};

const SIZE: usize = 4;

/// An operation. Unused fields are empty.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
pub(super) struct Op {
    pub(super) op: String,
    pub(super) f: String,
    pub(super) a: Vec<usize>,
    pub(super) t: Vec<usize>,
    pub(super) xs: Vec<Vec<usize>>,
    pub(super) values: Vec<f32>,
    pub(super) more: Vec<f32>,
    pub(super) weights: Vec<f32>,
    pub(super) places: Vec<i64>,
    pub(super) key: Vec<u32>,
    /// Index of the key that the operation uses or gives to its nested program.
    pub(super) from: Option<usize>,
    /// Part of a loop that has the key of a step: "carry", "xs" or "count".
    pub(super) keys: String,
    pub(super) count: usize,
    pub(super) first: i64,
    pub(super) end: i64,
    pub(super) above: f32,
    pub(super) below: f32,
    pub(super) carries: usize,
    pub(super) length: usize,
    pub(super) steps: i64,
    pub(super) reverse: bool,
    pub(super) slope: Option<Box<Body>>,
    #[serde(flatten)]
    pub(super) bodies: BTreeMap<String, serde_json::Value>,
}

pub(super) fn constant<B: Backend>(values: &[f32]) -> Tensor<B, 1> {
    Tensor::from_floats(values, &Default::default())
}

pub(super) fn everywhere<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    x.expand([SIZE])
}

/// Stacks arrays as rows.
pub(super) fn rows<B: Backend>(arrays: impl Iterator<Item = Array<B, 1>>) -> Array<B, 2> {
    Array::new(Tensor::stack(arrays.map(|x| x.val()).collect(), 0))
}

/// Returns the weighted sum of rows.
pub(super) fn weighted<B: Backend>(x: &Array<B, 2>, weights: &[f32]) -> Array<B, 1> {
    Array::new((x.val() * constant(weights).reshape([weights.len(), 1])).sum_dim(0).squeeze_dim(0))
}

/// Returns the sum of the elements.
pub(super) fn sum<B: Backend>(x: &Array<B, 1>) -> Tensor<B, 1> {
    x.val().sum()
}

fn unary<B: Backend>(name: &str, x: Tensor<B, 1>) -> Tensor<B, 1> {
    match name {
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tanh" => x.tanh(),
        "sigmoid" => activation::sigmoid(x),
        "silu" => activation::silu(x),
        "erf" => x.erf(),
        "square" => x.tanh().square(),
        "sqrt" => (x.square() + 1.0).sqrt(),
        "log" => (x.square() + 0.5).log(),
        "exp" => x.clamp(-2.0, 1.0).exp(),
        "recip" => (x.square() + 1.0).recip(),
        "abs" => (x + 0.13).abs(),
        "relu" => activation::relu(x),
        "softmax" => activation::softmax(x, 0),
        "cumsum" => x.cumsum(0),
        "cumprod" => (x.tanh() + 0.5).cumprod(0),
        "cummax" => x.cummax(0),
        "flip" => x.flip([0]),
        "sum" => everywhere(x.mean()),
        "max" => everywhere(x.max()),
        "prod" => x.clone() * (x.tanh() + 0.8).prod(),
        "top" => x.topk(2, 0).repeat(&[2]),
        "pow" => (x.square() + 0.1).powf_scalar(1.3),
        "sort" => ops::sort(x, 0, false),
        "sort_descending" => ops::sort(x, 0, true),
        "top_k" => Tensor::cat(vec![ops::top_k(x.clone(), 0, 3).0, x.narrow(0, 0, 1)], 0),
        "argsort" => x.clone() * ops::argsort(x, 0, false).float(),
        _ => unreachable!("no function `{name}`"),
    }
}

fn binary<B: Backend>(name: &str, a: Tensor<B, 1>, b: Tensor<B, 1>) -> Tensor<B, 1> {
    match name {
        "add" => a + b,
        "sub" => a - b,
        "mul" => a.tanh() * b,
        "div" => a / (b.square() + 1.0),
        "larger" => a.clone().mask_where(a.lower(b.clone()), b),
        "where" => b.mask_where(a.clone().greater_elem(0.1), a),
        "atan2" => a.atan2(b.square() + 0.5),
        "dot" => everywhere((a * b).sum().tanh()),
        "outer" => (a.reshape([SIZE, 1]) * b.reshape([1, SIZE])).tanh().sum_dim(0).squeeze_dim(0),
        _ => unreachable!("no function `{name}`"),
    }
}

/// Draws four numbers.
fn draw<B: Backend>(name: &str, key: Key) -> Tensor<B, 1> {
    let device = Default::default();
    match name {
        "normal" => key.normal([SIZE], &device),
        "uniform" => key.uniform([SIZE], 0.0, 1.0, &device),
        "bernoulli" => key.bernoulli::<B, 1>([SIZE], 0.4, &device).float(),
        // The remainder of a prime depends on every bit.
        "bits" => (key.random_bits::<B, 1>([SIZE], &device) % 251).float() / 251.0,
        _ => unreachable!("no distribution `{name}`"),
    }
}

/// Returns an integer from 0 to `last` that depends on a vector.
pub(super) fn small_integer<B: Backend>(x: Tensor<B, 1>, last: i64) -> Tensor<B, 1, Int> {
    (x.abs().sum() * 2.0).floor().int().clamp(0, last)
}

/// Updates elements at indices.
fn updated<B: Backend>(op: &Op, x: Tensor<B, 1>, values: Tensor<B, 1>) -> Tensor<B, 1> {
    let values = values.narrow(0, 0, op.places.len());
    let (values, update) = match op.f.as_str() {
        "set" => (values, IndexingUpdateOp::Assign),
        "add" => (values, IndexingUpdateOp::Add),
        "multiply" => (values.tanh(), IndexingUpdateOp::Mul),
        name => unreachable!("no update `{name}`"),
    };
    ops::select_assign(x, 0, ints(&op.places[..]), values, update)
}

/// The coefficients of functions `a x + b`, one per row.
type Affine<B> = (Array<B, 2>, Array<B, 2>);

/// Returns the weighted sum of the prefixes of an associative function.
fn prefixes<B: Backend>(op: &Op, env: &[Array<B, 1>]) -> Tensor<B, 1> {
    let of = |places: &[usize]| {
        let x = Tensor::stack::<2>(places.iter().map(|&i| env[i].val()).collect(), 0);
        if op.reverse { x.flip([0]) } else { x }
    };
    let [a, b] = [0, 1].map(|i| of(&op.xs[i]));
    let n = op.weights.len();
    let sum = |x: Tensor<B, 2>| {
        let x = if op.reverse { x.flip([0]) } else { x };
        weighted(&Array::new(x), &op.weights).val()
    };
    match op.f.as_str() {
        "add" => {
            sum(associative_scan(|a: Array<B, 2>, b: Array<B, 2>| Array::new(a.val() + b.val()), Array::new(a + b))
                .val())
        }
        "affine" => {
            let then = |(a, b): Affine<B>, (c, d): Affine<B>| {
                (Array::new(a.val() * c.val()), Array::new(b.val() * c.val() + d.val()))
            };
            let (a, b) = associative_scan(then, (Array::new(a.tanh()), Array::new(b)));
            sum(a.val()) + sum(b.val())
        }
        "matmul" => {
            let product = |a: Array<B, 3>, b: Array<B, 3>| Array::new(a.val().matmul(b.val()));
            let matrices = (a.tanh() + b.tanh() * 0.1).reshape([n, 2, 2]);
            sum(associative_scan(product, Array::new(matrices)).val().reshape([n, SIZE]))
        }
        name => unreachable!("no associative function `{name}`"),
    }
}

/// Computes an operation without nested programs; `None` for other operations.
pub(super) fn simple<B: Backend>(op: &Op, env: &[Array<B, 1>], keys: &[Key]) -> Option<Tensor<B, 1>> {
    let arg = |i: usize| env[op.a[i]].val();
    let table = || constant(&op.values).reshape([op.values.len() / SIZE, SIZE]);
    Some(match op.op.as_str() {
        "unary" => unary(&op.f, arg(0)),
        "binary" => binary(&op.f, arg(0), arg(1)),
        "const" => arg(0) * constant(&op.values) + constant(&op.more),
        "matvec" => table().matmul(arg(0).tanh().reshape([SIZE, 1])).squeeze_dim(1),
        "select" => arg(0).select(0, ints(&op.places[..])),
        "table" => {
            let last = (op.values.len() / SIZE - 1) as i64;
            table().select(0, small_integer(arg(0), last)).squeeze_dim(0) * arg(0)
        }
        "argmax" => table().select(0, arg(0).argmax(0)).squeeze_dim(0) + arg(0),
        "update" => arg(0).slice_assign(1..3, arg(1).narrow(0, 0, 2)),
        "draw" => {
            let next = |key: Key, step: &u32| match step {
                0 => key.split().0,
                1 => key.split().1,
                step => key.fold_in(*step),
            };
            draw(&op.f, op.key.iter().fold(keys[op.from.unwrap_or(0)], next)) * arg(0)
        }
        "at" => updated(op, arg(0), arg(1)),
        "associative" => prefixes(op, env),
        _ => return None,
    })
}
