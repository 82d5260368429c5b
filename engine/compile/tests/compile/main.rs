//! The tests of this crate in one program, which is linked once. Those that set what a whole process shares, measure its memory or
//! kill it are programs of their own, in the files beside this folder.
#![recursion_limit = "256"]

#[path = "../against_jax/mod.rs"]
mod against_jax;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/programs.rs"]
mod programs;

/// Gradients of a function, outside of traces and jitted.
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
mod ordering;
mod passes;
mod scan;
mod trace;
mod vmap;
