//! Values and derivatives in all modes against JAX.

use crate::against_jax::{Case, Found, Quantity, cases, check, programs, read};
use grove_backend::Flex;

const DIFFERENCES: &str = "compile/tests/against_jax/differences.txt";

#[test]
fn every_function_in_every_mode() {
    check("functions", &cases(), Some(DIFFERENCES), Case::modes::<Flex>);
}

#[test]
fn each_difference_has_a_reason_in_the_documentation() {
    let (page, differences) = (read("docs/jax.md"), read(DIFFERENCES));
    let reasons: Vec<_> = differences.lines().filter_map(|line| line.strip_prefix('[')?.strip_suffix(']')).collect();
    assert!(reasons.len() > 10);
    for reason in reasons {
        assert!(page.contains(&format!("| {reason} |")), "docs/jax.md has no row `{reason}`");
    }
}

/// Programs that are made by a seed; of another file where `GROVE_PROGRAMS` names one.
#[test]
fn random_programs() {
    let programs = programs(std::env::var_os("GROVE_PROGRAMS"));
    assert!(!programs.is_empty());
    // A rule that calls its own function cannot be stored.
    let is_refused = |found: &Found| matches!(found, Err(text) if text.contains("calls the function that it is of"));
    let modes = |case: &Case| -> Vec<(&'static str, Quantity, Found)> {
        case.modes::<Flex>().into_iter().filter(|(_, _, found)| !is_refused(found)).collect()
    };
    check("programs", &programs, None, modes);
}
