//! Random nested programs, which `tools/against_jax/programs.py` makes: the same operations on any backend.

use burn::tensor::{Bool, Int, Tensor, activation};
use grove_backend::{Autodiff, Backend, Flex};
use grove_compile::{
    CustomJvp, CustomVjp, Shared, Traced, cond, custom_jvp, custom_vjp, jit, jvp, scan_with, switch, vmap, while_loop,
};
use grove_transform::{Scan, grad};
use grove_tree::{Array, Key};
use serde::Deserialize;
use std::collections::BTreeMap;

use super::{Arrays, arrays::ints};

const SIZE: usize = 4;

/// A program: operations that each add values behind those that there are, inputs first, then what is captured.
#[derive(Deserialize, Clone, Debug)]
pub struct Body {
    captures: Vec<usize>,
    ops: Vec<Op>,
    out: Vec<usize>,
}

/// A program with its random key.
#[derive(Deserialize, Clone, Debug)]
pub struct Program {
    key: u64,
    program: Body,
}

impl Program {
    /// All outputs in one row.
    pub fn call<B: Level>(&self, x: Arrays<B>) -> Tensor<B, 1> {
        let outputs = self.program.call(x, Vec::new(), Key::new(self.key));
        Tensor::cat(outputs.iter().map(Array::val).collect(), 0)
    }
}

/// An operation; fields that it does not have are empty.
#[derive(Deserialize, Clone, Debug, Default)]
#[serde(default)]
struct Op {
    op: String,
    f: String,
    a: Vec<usize>,
    t: Vec<usize>,
    xs: Vec<Vec<usize>>,
    values: Vec<f32>,
    more: Vec<f32>,
    weights: Vec<f32>,
    places: Vec<i64>,
    key: Vec<u32>,
    above: f32,
    below: f32,
    carries: usize,
    length: usize,
    steps: i64,
    reverse: bool,
    slope: Option<Box<Body>>,
    #[serde(flatten)]
    bodies: BTreeMap<String, serde_json::Value>,
}

/// Backends on which programs run. Gradients of programs are those of the next level, to some depth, and of jitted ones below.
pub trait Level: Backend {
    /// The gradient of the weighted sum of the outputs, of the inputs.
    fn gradient(body: &Body, x: Arrays<Self>, captured: Arrays<Self>, key: Key, weights: &[f32]) -> Arrays<Self>;
}

macro_rules! levels {
    ($($backend:ty),*) => {
        $(impl Level for $backend {
            fn gradient(body: &Body, x: Arrays<Self>, captured: Arrays<Self>, key: Key, weights: &[f32]) -> Arrays<Self> {
                grad(&x, |x: Arrays<Autodiff<Self>>| {
                    let lifted = |x: &Array<Self, 1>| Array::new(Tensor::from_inner(x.val()));
                    let y = body.call(x, captured.iter().map(lifted).collect(), key);
                    y.into_iter().map(|y| (y.val() * constant(weights)).sum()).reduce(|a, b| a + b).unwrap()
                })
            }
        })*
    };
}

levels!(Flex, Traced, Autodiff<Flex>, Autodiff<Traced>);

macro_rules! deepest {
    ($($backend:ty),*) => {
        $(impl Level for $backend {
            fn gradient(body: &Body, x: Arrays<Self>, captured: Arrays<Self>, key: Key, weights: &[f32]) -> Arrays<Self> {
                let (body, weights) = (body.clone(), weights.to_vec());
                jit(move |(x, captured): (Arrays<Traced>, Arrays<Traced>)| Traced::gradient(&body, x, captured, key, &weights))
                    .call::<Self>((x, captured))
            }
        })*
    };
}

deepest!(Autodiff<Autodiff<Flex>>, Autodiff<Autodiff<Traced>>);

fn constant<B: Backend>(values: &[f32]) -> Tensor<B, 1> {
    Tensor::from_floats(values, &Default::default())
}

fn everywhere<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    x.expand([SIZE])
}

/// Arrays as rows of one.
fn rows<B: Backend>(arrays: impl Iterator<Item = Array<B, 1>>) -> Array<B, 2> {
    Array::new(Tensor::stack(arrays.map(|x| x.val()).collect(), 0))
}

/// The weighted sum of rows.
fn weighted<B: Backend>(x: &Array<B, 2>, weights: &[f32]) -> Array<B, 1> {
    Array::new((x.val() * constant(weights).reshape([weights.len(), 1])).sum_dim(0).squeeze_dim(0))
}

/// The sum of the elements.
fn sum<B: Backend>(x: &Array<B, 1>) -> Tensor<B, 1> {
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

/// An operation without programs inside; `None` if it has some.
fn simple<B: Backend>(op: &Op, env: &[Array<B, 1>], key: Key) -> Option<Tensor<B, 1>> {
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
            let place = (arg(0).abs().sum() * 2.0).floor().int().clamp(0, last);
            table().select(0, place).squeeze_dim(0) * arg(0)
        }
        "argmax" => table().select(0, arg(0).argmax(0)).squeeze_dim(0) + arg(0),
        "update" => arg(0).slice_assign(1..3, arg(1).narrow(0, 0, 2)),
        "draw" => {
            let next = |key: Key, step: &u32| match step {
                0 => key.split().0,
                1 => key.split().1,
                step => key.fold_in(*step),
            };
            let (key, device) = (op.key.iter().fold(key, next), Default::default());
            let drawn = match op.f.as_str() {
                "normal" => key.normal([SIZE], &device),
                _ => key.uniform([SIZE], 0.0, 1.0, &device),
            };
            drawn * arg(0)
        }
        _ => return None,
    })
}

impl Op {
    fn body(&self, name: &str) -> Body {
        serde_json::from_value(self.bodies[name].clone()).unwrap()
    }

    fn apply<B: Level>(&self, env: &[Array<B, 1>], key: Key) -> Arrays<B> {
        if let Some(y) = simple(self, env, key) {
            return vec![Array::new(y)];
        }
        let at = |places: &[usize]| places.iter().map(|&i| env[i].clone()).collect::<Arrays<B>>();
        let body = |name: &str| {
            let body = self.body(name);
            let captured = at(&body.captures);
            (body, captured)
        };
        let args = at(&self.a);
        match self.op.as_str() {
            "cond" => {
                let [(yes, of_yes), (no, of_no)] = [body("true"), body("false")];
                let above: Tensor<B, 1, Bool> = sum(&args[0]).greater_elem(self.above);
                let call = |body: Body, captured: Arrays<B>| move |x: Arrays<B>| body.call(x, captured.clone(), key);
                cond(above, call(yes, of_yes), call(no, of_no), args[1..].to_vec())
            }
            "switch" => {
                let branches = ["0", "1", "2"].map(|name| {
                    let (body, captured) = body(name);
                    move |x: Arrays<B>| body.call(x, captured.clone(), key)
                });
                let branches: Vec<&dyn Fn(Arrays<B>) -> Arrays<B>> = branches.iter().map(|f| f as _).collect();
                let index: Tensor<B, 1, Int> = sum(&args[0]).floor().int();
                switch(index, &branches, args[1..].to_vec())
            }
            "scan" => {
                let (body, captured) = body("body");
                let xs: Vec<Array<B, 2>> = self.xs.iter().map(|places| rows(at(places).into_iter())).collect();
                let mut options = Scan::new().length(self.length);
                if self.reverse {
                    options = options.reverse();
                }
                let step = |(): (), carry: Arrays<B>, x: Arrays<B>| {
                    let mut outputs = body.call([carry, x].concat(), captured.clone(), key);
                    let y = outputs.split_off(self.carries);
                    (outputs, y)
                };
                let (mut carry, ys) = scan_with(options, &(), step, args, xs);
                carry.extend(ys.iter().map(|y| weighted(y, &self.weights)));
                carry
            }
            "while" => {
                let (body, captured) = body("body");
                let goes_on = |(count, x): (Array<B, 1, Int>, Arrays<B>)| {
                    count.val().lower_elem(self.steps).bool_and(sum(&x[0]).lower_elem(self.below))
                };
                let step = |(count, x): (Array<B, 1, Int>, Arrays<B>)| {
                    (Array::new(count.val() + 1), body.call(x, captured.clone(), key))
                };
                while_loop(goes_on, step, (Array::new(ints([0])), args)).1
            }
            "grad" => {
                let (body, captured) = body("body");
                B::gradient(&body, args, captured, key, &self.weights)
            }
            "jvp" => {
                let (body, captured) = body("body");
                let count = args.len();
                let none: Arrays<B> = captured.iter().map(|x| Array::new(x.val().zeros_like())).collect();
                let f = |mut x: Arrays<Traced>| {
                    let captured = x.split_off(count);
                    body.call(x, captured, key)
                };
                let (values, tangents) = jvp(f, &[args, captured].concat(), &[at(&self.t), none].concat());
                [values, tangents].concat()
            }
            "vmap" => {
                let (body, captured) = body("body");
                let xs: Vec<Array<B, 2>> = self.xs.iter().map(|places| rows(at(places).into_iter())).collect();
                let f = |(xs, args, captured): (Arrays<Traced>, Arrays<Traced>, Arrays<Traced>)| {
                    body.call([xs, args].concat(), captured, key)
                };
                let ys: Vec<Array<B, 2>> = vmap(f).call::<B, _>((xs, Shared(args), Shared(captured)));
                ys.iter().map(|y| weighted(y, &self.weights)).collect()
            }
            "jit" => {
                let (body, captured) = body("body");
                jit(move |(x, captured): (Arrays<Traced>, Arrays<Traced>)| body.call(x, captured, key))
                    .call((args, captured))
            }
            "custom_jvp" => vec![custom_jvp(&self.rule(), args[0].clone())],
            "custom_vjp" => vec![custom_vjp(&self.rule(), args[0].clone())],
            name => unreachable!("no operation `{name}`"),
        }
    }

    fn rule(&self) -> Rule {
        Rule { body: self.body("body"), slope: *self.slope.clone().unwrap() }
    }
}

impl Body {
    /// The outputs.
    pub fn call<B: Level>(&self, inputs: Arrays<B>, captured: Arrays<B>, key: Key) -> Arrays<B> {
        let mut env = [inputs, captured].concat();
        for op in &self.ops {
            env.extend(op.apply(&env, key));
        }
        self.out.iter().map(|&i| env[i].clone()).collect()
    }

    /// The output of a program without others inside, on any backend.
    fn elementwise<B: Backend>(&self, x: Array<B, 1>) -> Array<B, 1> {
        let mut env = vec![x];
        for op in &self.ops {
            env.push(Array::new(simple(op, &env, Key::new(0)).unwrap()));
        }
        env[self.out[0]].clone()
    }
}

/// A function of each element, with another one as its derivative.
#[derive(Clone, Debug)]
struct Rule {
    body: Body,
    slope: Body,
}

impl CustomJvp for Rule {
    type Args<B: Backend> = Array<B, 1>;
    type Output<B: Backend> = Array<B, 1>;

    fn call<B: Backend>(&self, x: Array<B, 1>) -> Array<B, 1> {
        self.body.elementwise(x)
    }

    fn jvp<B: Backend>(&self, x: Array<B, 1>, t: Array<B, 1>) -> (Array<B, 1>, Array<B, 1>) {
        let slope = self.slope.elementwise(x.clone());
        (custom_jvp(self, x), Array::new(t.val() * slope.val()))
    }
}

impl CustomVjp for Rule {
    type Args<B: Backend> = Array<B, 1>;
    type Output<B: Backend> = Array<B, 1>;
    type Residuals<B: Backend> = Array<B, 1>;

    fn forward<B: Backend>(&self, x: Array<B, 1>) -> (Array<B, 1>, Array<B, 1>) {
        (self.body.elementwise(x.clone()), x)
    }

    fn backward<B: Backend>(&self, x: Array<B, 1>, grad: Array<B, 1>) -> Array<B, 1> {
        Array::new(grad.val() * self.slope.elementwise(x).val())
    }
}
