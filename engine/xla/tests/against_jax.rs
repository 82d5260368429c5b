//! Compares values and derivatives computed by XLA with JAX: the functions and random programs of
//! engine/compile/tests/against_jax.
//!
//! One program contains all modes of a function, and runs with all kinds of its arguments.
#![recursion_limit = "256"]

#[path = "../../compile/tests/against_jax/mod.rs"]
mod against_jax;
mod graphs;

use against_jax::{Case, Mode, cases, check, check_reasons, families, programs};
use graphs::{Compiled, arrays, shared};
use grove_backend::Flex;
use grove_xla::Client;
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

const DIFFERENCES: &str = "engine/xla/tests/against_jax.txt";

/// Returns the results of cases that share one program.
fn modes<'a>(client: &Client, cases: &[&'a Case]) -> Vec<(&'a Case, Vec<Mode>)> {
    let (graph, modes) = cases[0].in_one();
    let compile = || Compiled::new(client, &graph);
    let program = catch_unwind(AssertUnwindSafe(compile)).map_err(|_| "XLA refuses the program".to_owned());
    let of_case = |case: &&'a Case| {
        let results = program.as_ref().map(|program| program.run(client, &arrays(&case.inputs::<Flex>()), &[]));
        let mut results = results.map(Vec::into_iter);
        let of_mode = |(mode, quantity, count): &(&'static str, _, Result<usize, String>)| {
            let lists = count.clone().and_then(|count| {
                let results = results.as_mut().map_err(|text| text.clone())?;
                Ok(results.take(count).map(|data| data.iter::<f64>().collect()).collect())
            });
            (*mode, *quantity, lists)
        };
        (*case, modes.iter().map(of_mode).collect())
    };
    cases.iter().map(of_case).collect()
}

/// Returns the results of groups of cases, one program per group, on two threads.
fn all<'a>(client: &Client, groups: &[Vec<&'a Case>]) -> Vec<(&'a Case, Vec<Mode>)> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(group) = groups.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = modes(client, group);
            results.lock().unwrap().extend(found);
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(work);
        work();
    });
    results.into_inner().unwrap()
}

/// Returns true if the environment requests all cases, not only those that take about a minute.
fn all_are_wanted() -> bool {
    std::env::var_os("GROVE_EVERY_CASE").is_some()
}

/// Includes the cases of f64 only if all cases are requested.
#[test]
fn every_function() {
    let Some(client) = shared() else { return };
    let cases: Vec<_> = cases().into_iter().filter(|case| case.dtype == "float32" || all_are_wanted()).collect();
    check("xla", all(client, &families(&cases)), Some(DIFFERENCES));
}

#[test]
fn each_difference_has_a_reason_in_the_documentation() {
    check_reasons(DIFFERENCES);
}

/// Reads the file of `GROVE_PROGRAMS` if set; otherwise runs some of the programs.
#[test]
fn random_programs() {
    let Some(client) = shared() else { return };
    let file = std::env::var_os("GROVE_PROGRAMS");
    let some = if file.is_some() || all_are_wanted() { usize::MAX } else { 12 };
    let mut programs = programs(file);
    programs.truncate(some);
    let groups: Vec<_> = programs.iter().map(|case| vec![case]).collect();
    check("xla_programs", all(client, &groups), None);
}
