//! Compares every differentiable method of `Tensor` and every operation of grove with JAX, in all modes, at ordinary and
//! special arguments.
//!
//! `tools/against_jax/derivatives.py` generates the fixture from the same functions under the same names. `differences.txt`
//! lists the known differences under the reasons given in docs/jax.md; the test fails if the differences change.
#![allow(dead_code, unused_imports)] // Each test program uses a part.

mod arrays;
mod compare;
mod elementwise;
mod in_one;
mod modules;
mod operations;
mod programs;

use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_compile::{Graph, Traced, hvp, jit, jvp, linearize, trace, vmap};
use grove_transform::{grad, value_and_grad_aux};
use grove_tree::Array;
use serde::Deserialize;
use std::{
    any::Any,
    ffi::OsString,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

pub use compare::{check, check_reasons};
pub use in_one::families;
pub use programs::{Level, Program};

pub type Arrays<B> = Vec<Array<B, 1>>;

/// Results of JAX for a function.
#[derive(Deserialize, Clone, Debug)]
pub struct Case {
    pub function: String,
    /// Kind of arguments.
    pub arguments: String,
    pub dtype: String,
    x: Vec<String>,
    t: Vec<String>,
    w: String,
    value: String,
    tangent: String,
    gradient: Vec<String>,
    hvp: Vec<String>,
    /// True if forward mode is defined.
    #[serde(default = "yes")]
    forward: bool,
    /// True if reverse mode is defined.
    #[serde(default = "yes")]
    reverse: bool,
    #[serde(flatten)]
    program: Option<Program>,
}

fn yes() -> bool {
    true
}

/// Reads a file of the repository.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Returns the cases of all functions.
pub fn cases() -> Vec<Case> {
    serde_json::from_str(&read("engine/compile/tests/fixtures/against_jax.json")).unwrap()
}

/// Returns random programs, from a file or from the fixture.
pub fn programs(file: Option<OsString>) -> Vec<Case> {
    let text = match file {
        Some(file) => std::fs::read_to_string(file).unwrap(),
        None => read("engine/compile/tests/fixtures/programs.jsonl"),
    };
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Parses a list of numbers.
pub fn numbers(text: &str) -> Vec<f64> {
    text.split_whitespace().map(|token| token.parse().unwrap()).collect()
}

/// Calls a function of flat arrays, with a flat result.
fn call<B: Backend>(name: &str, x: &Arrays<B>) -> Tensor<B, 1> {
    let x: Vec<_> = x.iter().map(Array::val).collect();
    let one = || x.len() == 1;
    None.or_else(|| one().then(|| elementwise::unary(name, x[0].clone()))?)
        .or_else(|| elementwise::binary(name, &x))
        .or_else(|| one().then(|| arrays::shapes(name, &x))?)
        .or_else(|| arrays::updates(name, &x))
        .or_else(|| one().then(|| arrays::reductions(name, &x))?)
        .or_else(|| arrays::products(name, &x))
        .or_else(|| arrays::signals(name, &x))
        .or_else(|| modules::rows(name, &x))
        .or_else(|| modules::images(name, &x))
        .or_else(|| modules::sequences(name, &x))
        .unwrap_or_else(|| panic!("no function `{name}`"))
}

/// Results of a mode, one list per array, or the first line of its error.
pub type Found = Result<Vec<Vec<f64>>, String>;

/// Name of a mode, its quantity and its results.
pub type Mode = (&'static str, Quantity, Found);

fn attempt<B: Backend>(f: impl FnOnce() -> Arrays<B>) -> Found {
    // Gradients of arrays that are not differentiated are absent.
    let list = |x: &Array<B, 1>| match x.is_present() {
        true => x.val().into_data().iter::<f64>().collect(),
        false => vec![0.0; x.shape().iter().product()],
    };
    let lists = || f().iter().map(list).collect();
    catch_unwind(AssertUnwindSafe(lists)).map_err(text)
}

/// Returns the first line of a panic message.
fn text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast::<String>().map(|text| *text);
    let text = text.or_else(|panic| panic.downcast::<&str>().map(|text| (*text).to_owned())).unwrap_or_default();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.starts_with("===") && *line != "Reason:");
    lines.next().unwrap_or_default().to_owned()
}

/// Parses an array with the dtype of the case.
fn array<B: Backend>(text: &str, dtype: &str) -> Array<B, 1> {
    let dtype = if dtype == "float64" { DType::F64 } else { DType::F32 };
    Array::new(Tensor::from_data(TensorData::from(&numbers(text)[..]), (&Default::default(), dtype)))
}

impl Case {
    /// Returns the name of the function, with its dtype unless it is f32.
    pub fn name(&self) -> String {
        match self.dtype.as_str() {
            "float64" => format!("{} in f64", self.function),
            _ => self.function.clone(),
        }
    }

    pub fn arrays<B: Backend>(&self, texts: &[String]) -> Arrays<B> {
        texts.iter().map(|text| array(text, &self.dtype)).collect()
    }

    pub fn x<B: Backend>(&self) -> Arrays<B> {
        self.arrays(&self.x)
    }

    pub fn t<B: Backend>(&self) -> Arrays<B> {
        self.arrays(&self.t)
    }

    fn call<B: Level>(&self, x: Arrays<B>) -> Tensor<B, 1> {
        match &self.program {
            Some(program) => program.call(x),
            None => call(&self.function, &x),
        }
    }

    pub fn value<B: Level>(&self) -> impl Fn(Arrays<B>) -> Arrays<B> + '_ {
        |x| vec![Array::new(self.call(x))]
    }

    fn w<B: Backend>(&self) -> Array<B, 1> {
        array(&self.w, &self.dtype)
    }

    /// Returns the weighted sum of the results.
    fn loss<B: Level>(&self, x: Arrays<B>, w: Tensor<B, 1>) -> Tensor<B, 1> {
        (self.call(x) * w).sum()
    }

    pub fn gradient<B: Backend>(&self, w: Array<B, 1>) -> impl Fn(Arrays<B>) -> Arrays<B> + '_
    where
        Autodiff<B>: Level,
    {
        move |x| grad(&x, |x: Arrays<Autodiff<B>>| self.loss(x, Tensor::from_inner(w.val())))
    }

    /// Stacks the arguments twice, as a batch of two examples.
    fn twice<B: Backend>(x: Arrays<B>) -> Vec<Array<B, 2>> {
        x.into_iter().map(|x| Array::new(Tensor::stack(vec![x.val(), x.val()], 0))).collect()
    }

    /// Returns the second of two examples.
    fn last<B: Backend>(x: Vec<Array<B, 2>>) -> Arrays<B> {
        x.into_iter().map(|x| Array::new(x.val().narrow(0, 1, 1).squeeze_dim(0))).collect()
    }

    /// Runs all modes. Returns name, quantity and results of each, in order.
    pub fn modes<F: Level>(&self) -> Vec<Mode>
    where
        Autodiff<F>: Level,
    {
        use Quantity::{Gradient, Product, Tangent, Value};
        let (x, t) = (|| self.x::<F>(), || self.t::<F>());
        let eval = |graph: Graph| {
            let graph = Graph::from_json(&graph.to_json().unwrap()).unwrap();
            let results = graph.eval::<F, _>(&x()).into_iter();
            results.map(|x| Array::new(x.into_float::<1>().unwrap())).collect()
        };
        let value = || self.value::<Traced>();
        // The weights are created in the trace.
        let gradient = || move |x: Arrays<Traced>| self.gradient::<Traced>(self.w())(x);
        let tangent = |(x, t): (Arrays<Traced>, Arrays<Traced>)| jvp(value(), &x, &t).1;
        let product = |(x, t): (Arrays<Traced>, Arrays<Traced>)| jvp(gradient(), &x, &t).1;
        let aux = |x: Arrays<Autodiff<F>>| (self.loss(x.clone(), self.w().val()), self.value()(x));
        let mut modes = vec![
            ("eager", Value, attempt(|| self.value::<F>()(x()))),
            ("jit", Value, attempt(|| jit(value()).call::<F>(x()))),
            ("JSON", Value, attempt(|| eval(trace(value(), &x())))),
            ("vmap", Value, attempt(|| Self::last(vmap(value()).call::<F, _>(Self::twice(x()))))),
        ];
        if self.forward {
            modes.extend([
                ("jvp", Tangent, attempt(|| jvp(value(), &x(), &t()).1)),
                ("jit(jvp)", Tangent, attempt(|| jit(tangent).call::<F>((x(), t())))),
                ("linearize", Tangent, attempt(|| linearize(value(), &x()).1.call(&t()))),
                (
                    "vmap(jvp)",
                    Tangent,
                    attempt(|| Self::last(vmap(tangent).call((Self::twice(x()), Self::twice(t()))))),
                ),
            ]);
        }
        if self.reverse {
            modes.extend([
                ("value_and_grad", Value, attempt(|| value_and_grad_aux(&x(), aux).2)),
                ("grad", Gradient, attempt(|| self.gradient::<F>(self.w())(x()))),
                ("jit(grad)", Gradient, attempt(|| jit(gradient()).call::<F>(x()))),
                ("JSON of grad", Gradient, attempt(|| eval(trace(gradient(), &x())))),
                ("vmap(grad)", Gradient, attempt(|| Self::last(vmap(gradient()).call::<F, _>(Self::twice(x()))))),
                (
                    "hvp",
                    Product,
                    attempt(|| hvp(|x: Arrays<Autodiff<Traced>>| self.loss(x, self.w().val()), &x(), &t())),
                ),
                ("jit(hvp)", Product, attempt(|| jit(product).call::<F>((x(), t())))),
            ]);
        }
        modes
    }

    /// Returns the results of JAX.
    pub fn reference(&self, quantity: Quantity) -> Vec<Vec<f64>> {
        let all = |texts: &[String]| texts.iter().map(|text| numbers(text)).collect();
        match quantity {
            Quantity::Value => vec![numbers(&self.value)],
            Quantity::Tangent => vec![numbers(&self.tangent)],
            Quantity::Gradient => all(&self.gradient),
            Quantity::Product => all(&self.hvp),
        }
    }
}

/// Quantity that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    Value,
    Tangent,
    Gradient,
    /// Hessian-vector product.
    Product,
}
