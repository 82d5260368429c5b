//! Values and derivatives in all modes against JAX.

use crate::against_jax::{Case, Found, cases, check, check_reasons, programs};
use grove_backend::Flex;

const DIFFERENCES: &str = "engine/compile/tests/against_jax/differences.txt";

#[test]
fn every_function_in_every_mode() {
    let cases = cases();
    check("functions", cases.iter().map(|case| (case, case.modes::<Flex>())), Some(DIFFERENCES));
}

#[test]
fn each_difference_has_a_reason_in_the_documentation() {
    check_reasons(DIFFERENCES);
}

/// Programs generated from a seed, or the programs of the file `GROVE_PROGRAMS`.
#[test]
fn random_programs() {
    let programs = programs(std::env::var_os("GROVE_PROGRAMS"));
    assert!(!programs.is_empty());
    // A rule that calls its own function cannot be serialised.
    let is_refused = |found: &Found| matches!(found, Err(text) if text.contains("calls the function that it is of"));
    let modes = |case: &Case| case.modes::<Flex>().into_iter().filter(|(_, _, found)| !is_refused(found)).collect();
    check("programs", programs.iter().map(|case| (case, modes(case))), None);
}
