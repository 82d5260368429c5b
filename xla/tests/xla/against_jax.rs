//! Values and derivatives that XLA computes, against JAX.

use crate::{
    against_jax::{Case, Found, Quantity, cases, check, programs},
    graphs::{arrays, run, shared},
};
use burn::tensor::TensorData;
use grove_backend::Flex;
use grove_xla::Client;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Results of a case's program.
fn modes(client: &Client, case: &Case) -> Vec<(&'static str, Quantity, Found)> {
    let name = |quantity| match quantity {
        Quantity::Value => "XLA",
        Quantity::Tangent => "XLA, jvp",
        Quantity::Gradient => "XLA, grad",
        Quantity::Product => "XLA, hvp",
    };
    let (graph, quantities) = case.graph::<Flex>();
    let inputs = arrays(&(case.x::<Flex>(), case.t::<Flex>()));
    let results = graph.and_then(|graph| {
        let run = || run(client, &graph, &inputs, &[]);
        catch_unwind(AssertUnwindSafe(run)).map_err(|_| "XLA refuses the program".to_owned())
    });
    let mut results = results.map(Vec::into_iter);
    let numbers = |data: TensorData| data.iter::<f64>().collect::<Vec<_>>();
    let of = |quantity| {
        let count = case.reference(quantity).len();
        let lists = results.as_mut().map(|results| results.by_ref().take(count).map(numbers).collect());
        (name(quantity), quantity, lists.map_err(|text| text.clone()))
    };
    quantities.into_iter().map(of).collect()
}

#[test]
fn every_function() {
    let Some(client) = shared() else { return };
    // A program is compiled for each of these.
    let some =
        |case: &Case| case.dtype == "float32" && ["points", "ordinary", "NaN"].contains(&case.arguments.as_str());
    let cases: Vec<_> = cases().into_iter().filter(some).collect();
    check("xla", &cases, Some("xla/tests/xla/differences.txt"), |case| modes(client, case));
}

#[test]
fn random_programs() {
    let Some(client) = shared() else { return };
    check("xla_programs", &programs(std::env::var_os("GROVE_PROGRAMS")), None, |case| modes(client, case));
}
