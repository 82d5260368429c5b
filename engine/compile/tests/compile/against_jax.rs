//! Values and derivatives in all modes against JAX.

use crate::against_jax::{Case, Found, cases, check, check_reasons, programs, read};
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

/// Functions of Burn that cannot be traced or differentiated, with a part of the error.
#[test]
fn refused_functions_name_the_operation() {
    let of_trace = "Burn's operation `Interpolate` cannot be traced yet: write it with other operations of tensors";
    let refused = [
        ("interpolate nearest", "jit", of_trace),
        ("interpolate bilinear", "jit(hvp)", of_trace),
        ("interpolate bicubic", "jvp", of_trace),
        ("interpolate bicubic", "jit(grad)", of_trace),
        ("interpolate lanczos3", "vmap", of_trace),
        ("interpolate lanczos3", "grad", "interpolate_backward: unsupported mode Lanczos3"),
        ("rfft", "jit", "rfft is not supported for backend-router"),
        ("rfft", "grad", "rfft not yet supported for autodiff"),
        ("irfft", "jit", "irfft is not supported for backend-router"),
        ("irfft", "grad", "irfft not yet supported for autodiff"),
        ("cfft", "jvp", "rfft is not supported for backend-router"),
        ("stft", "grad", "rfft not yet supported for autodiff"),
        ("istft", "grad", "irfft not yet supported for autodiff"),
    ];
    let cases = cases();
    for (function, mode, sentence) in refused {
        let case = cases.iter().find(|case| case.function == function && case.arguments == "ordinary").unwrap();
        let modes = case.modes::<Flex>();
        let (_, _, found) = modes.iter().find(|(name, ..)| *name == mode).unwrap();
        assert!(matches!(found, Err(text) if text.contains(sentence)), "{function}, {mode}: {found:?}");
    }
}

/// The programs of the fixture have each operation, each distribution, and each way in which a loop has keys as data.
#[test]
fn the_programs_have_every_operation() {
    let text = read("engine/compile/tests/fixtures/programs.jsonl");
    let operations = "argmax associative at binary checkpoint cond const custom_jvp custom_vjp draw fold_in fori grad jit \
                      jvp matvec scan select split switch table unary update vmap while";
    let functions = "normal uniform bernoulli bits sort sort_descending top_k argsort set affine matmul";
    let of = |field, names: &'static str| names.split(' ').map(move |name| (field, name));
    for (field, name) in of("op", operations).chain(of("f", functions)).chain(of("keys", "carry xs count")) {
        assert!(text.contains(&format!("\"{field}\": \"{name}\"")), "no program has the {field} `{name}`");
    }
}

/// Programs generated from a seed, or the programs of the file `GROVE_PROGRAMS`.
#[test]
fn random_programs() {
    let programs = programs(std::env::var_os("GROVE_PROGRAMS"));
    assert!(!programs.is_empty());
    // A rule that calls its own function cannot be serialised.
    let is_refused = |found: &Found| matches!(found, Err(text) if text.contains("a differentiation rule that calls its own function"));
    let modes = |case: &Case| case.modes::<Flex>().into_iter().filter(|(_, _, found)| !is_refused(found)).collect();
    check("programs", programs.iter().map(|case| (case, modes(case))), None);
}
