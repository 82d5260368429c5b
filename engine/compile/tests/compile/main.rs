//! All tests of this crate in one binary, which is linked once. Tests that change global state, measure the memory of the
//! process or kill it are separate binaries next to this folder.
#![recursion_limit = "256"]

#[path = "../against_jax/mod.rs"]
mod against_jax;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/programs.rs"]
mod programs;

/// Compares gradients of a function outside traces with jitted ones.
macro_rules! gradients {
    ($what:expr, $f:path, $traced:ty, $args:expr) => {{
        let args = $args;
        let (value, grads) = value_and_grad(&args, $f);
        let jitted = jit(|args: $traced| {
            let (value, grads) = value_and_grad(&args, $f);
            (Array::<_, 1>::new(value), grads)
        });
        let (found, found_grads) = jitted.call::<F>(args);
        same($what, &found, &Array::new(value));
        same($what, &found_grads, &grads);
        jitted.graph().unwrap()
    }};
}

#[path = "against_jax.rs"]
mod agreement_with_jax;
mod all_reduce;
mod closures;
mod control_flow;
mod cost;
mod custom_rules;
mod decode;
mod derivatives;
mod functional_loops;
mod fuse;
mod identity;
mod indexing;
mod integers;
mod json;
mod jvp;
mod key_arrays;
mod keys;
mod layers;
mod lazy;
mod loops;
mod max_pooling;
mod ordering;
mod passes;
mod scan;
mod trace;
mod vmap;
mod vmap_operations;
