//! Differentiation on several threads at once, including rayon's workers. On a deadlock the test program aborts.

use burn::tensor::{Tensor, activation};
use burn_flex::Flex;
use grove_backend::{Autodiff, GeluApproximation, ops};
use grove_transform::{Scan, value_and_grad, vjp};
use grove_tree::{Array, Key, all_close};
use rayon::prelude::*;
use std::{io::Write, sync::mpsc, thread, time::Duration};

type B = Flex;
type A = Autodiff<Flex>;

/// Timeout of a test, much longer than a test takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(400);

/// Runs a test on its own thread. Aborts the program if the test does not finish in time.
fn watched<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = mpsc::channel();
    let thread = thread::spawn(move || sender.send(run()));
    match receiver.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            // Not `eprintln`, because the test harness captures it.
            let _ = writeln!(std::io::stderr(), "deadlock: {PATIENCE:?} have passed");
            std::process::abort()
        }
    }
}

fn normal<const D: usize>(seed: u64, shape: [usize; D]) -> Array<B, D> {
    Array::new(Key::new(seed).normal(shape, &Default::default()) * 0.1)
}

type Layer<B> = (Array<B, 2>, Array<B, 1>);

fn layer(seed: u64) -> Layer<B> {
    (normal(seed, [192, 192]), normal(seed + 100, [192]))
}

/// Matrix products, an activation and a softmax, all of which run on rayon's threads.
fn loss((weight, bias): &Layer<A>, seed: u64) -> Tensor<A, 1> {
    let x = Tensor::<A, 2>::from_inner(normal(seed, [192, 192]).val());
    let y = ops::gelu(ops::linear(x, weight.val(), Some(bias.val())), GeluApproximation::Tanh);
    let y = ops::linear(y, weight.val(), None);
    let y = activation::softmax(y, 1);
    (y.clone() * y).sum()
}

/// Returns the loss and its gradient.
fn step(seed: u64) -> (f32, Layer<B>) {
    let (value, grads) = value_and_grad(&layer(seed), |layer| loss(&layer, seed));
    (value.into_scalar(), grads)
}

fn same(found: &(f32, Layer<B>), expected: &(f32, Layer<B>)) {
    assert!((found.0 - expected.0).abs() <= 1e-5 * expected.0.abs(), "{} and {}", found.0, expected.0);
    assert!(all_close(&found.1, &expected.1, 1e-3, 1e-6));
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool")
}

#[test]
fn workers_differentiate_in_parallel() {
    watched(|| {
        let expected: Vec<_> = (0..8).map(step).collect();
        for threads in [1, 2, 4] {
            let pool = pool(threads);
            for _ in 0..60 {
                let found: Vec<_> = pool.install(|| (0..8).into_par_iter().map(step).collect());
                found.iter().zip(&expected).for_each(|(found, expected)| same(found, expected));
            }
        }
        // The global pool.
        for _ in 0..60 {
            let found: Vec<_> = (0..8).into_par_iter().map(step).collect();
            found.iter().zip(&expected).for_each(|(found, expected)| same(found, expected));
        }
    });
}

#[test]
fn threads_and_workers_at_once() {
    watched(|| {
        let expected: Vec<_> = (0..4).map(step).collect();
        let pool = pool(3);
        thread::scope(|scope| {
            for i in 0..4 {
                let (pool, expected) = (&pool, &expected);
                scope.spawn(move || {
                    for _ in 0..30 {
                        // Two threads wait for the pool, two compute themselves.
                        let found = if i < 2 { pool.install(|| step(i)) } else { step(i) };
                        same(&found, &expected[i as usize]);
                    }
                });
            }
        });
    });
}

#[test]
fn pullbacks_and_scans_with_remat_in_parallel() {
    watched(|| {
        let pull = |seed: u64| {
            let (value, pullback) = vjp(&layer(seed), |layer| Array::<_, 1>::new(loss(&layer, seed)));
            // Half of the pullbacks are never called.
            let grads = seed.is_multiple_of(2).then(|| pullback(Array::new(value.val().ones_like())));
            (value.val().into_scalar(), grads)
        };
        let scanned = |seed: u64| {
            let step = |(w, _): &Layer<A>, h: Array<A, 2>, x: Array<A, 2>| {
                (Array::new((h.val().matmul(w.val()) + x.val()).tanh()), ())
            };
            let loss = |_: &Layer<A>, h: Array<A, 2>, ()| h.val().powf_scalar(2.0).sum();
            let (init, xs) = (normal(7, [64, 192]), normal(seed, [6, 64, 192]));
            let (value, (grads, ..)) = Scan::new().remat().every(2).value_and_grad(&layer(seed), init, xs, step, loss);
            (value.into_scalar(), grads)
        };
        let expected: Vec<_> = (0..8).map(|i| (step(i), scanned(i))).collect();
        let pool = pool(4);
        for _ in 0..40 {
            let found: Vec<_> = pool.install(|| (0..8).into_par_iter().map(|i| (pull(i), scanned(i))).collect());
            for (((value, grads), scanned), expected) in found.into_iter().zip(&expected) {
                same(&(value, grads.unwrap_or_else(|| expected.0.1.clone())), &expected.0);
                same(&scanned, &expected.1);
            }
        }
    });
}

#[test]
fn a_differentiated_function_differentiates() {
    watched(|| {
        let found: Vec<f32> = (0..16)
            .into_par_iter()
            .map(|seed| {
                let (value, _) = value_and_grad(&layer(seed), |outer| {
                    let inner: Vec<f32> = (0..2).into_par_iter().map(|_| step(seed).0).collect();
                    loss(&outer, seed) * inner[0] + inner[1]
                });
                value.into_scalar()
            })
            .collect();
        for (seed, found) in found.into_iter().enumerate() {
            let alone = step(seed as u64).0;
            assert!((found - (alone * alone + alone)).abs() <= 1e-4 * alone, "{found}, {alone}");
        }
    });
}
