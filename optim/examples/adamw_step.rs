//! Times steps of AdamW on flex: `cargo run --example adamw_step [ELEMENTS] [LEAVES]`. Prints milliseconds per step.

use grove_backend::Flex;
use grove_optim::{Adamw, GradientTransformation, adamw, apply_updates};
use grove_tree::{Array, Init, Key, map};
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>().expect("a whole number"));
    let elements = arguments.next().unwrap_or(4 << 20);
    let leaves = arguments.next().unwrap_or(1);
    let init = Init::<Flex>::new(Key::new(0), &Default::default());
    let make = |name: &str| -> Vec<Array<Flex, 2>> {
        (0..leaves).map(|i| init.named(name).fold_in(i as u32).normal([elements / 1024, 1024], 0.02)).collect()
    };
    let optimizer = adamw::<Flex>(1e-3, Adamw::default().weight_decay(0.1));
    let (mut params, grads) = (make("params"), make("grads"));
    let mut state = optimizer.init(&params);
    let mut times = Vec::new();
    for _ in 0..30 {
        // A copy, because nothing else holds the gradients in a train step.
        let grads = map::<Flex, _>(grads.clone(), |leaf| leaf.mul_scalar(1.0));
        let begin = Instant::now();
        let (updates, next) = optimizer.update(grads, state, &params);
        params = apply_updates(params, updates);
        state = next;
        times.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!("{elements} elements in {leaves} leaves: median {:.2} ms, least {:.2} ms", times[15], times[0]);
}
