//! Random keys in loops, sorts, scans of associative functions and prints, through XLA and on flex.

use crate::graphs::{check, shared};
use burn::tensor::{Int, Tensor};
use grove_backend::{
    Backend, Flex,
    ops::{index_copy, one_hot, sort, top_k},
};
use grove_compile::{Traced, associative_scan, cond, debug_print, fori_loop, jit, remat, scan, vmap, while_loop};
use grove_layers::dropout;
use grove_transform::grad;
use grove_tree::{Array, Key, Keys};
use grove_xla::Xla;
use std::{process::Command, sync::OnceLock};

type Matrix<B> = Array<B, 2>;

fn device() -> Option<grove_compile::TraceDevice> {
    static DEVICE: OnceLock<Option<grove_compile::TraceDevice>> = OnceLock::new();
    *DEVICE.get_or_init(|| Some(shared()?.device(0).unwrap().lazy()))
}

fn x() -> Matrix<Flex> {
    Array::new(Key::new(11).normal([4, 6], &Default::default()))
}

fn draws<B: Backend>(xs: Matrix<B>, key: Key) -> (Matrix<B>, Keys<B>, Key) {
    let step = |key: Key, x: Array<B, 1>| {
        let (next, key) = key.split();
        let y = dropout(x.val(), 0.5, Some(key)) + key.fold_in(3).normal([6], &x.val().device());
        (next, (Array::<B, 1>::new(y), key))
    };
    let (key, (ys, keys)) = scan(step, key, xs);
    (ys, keys, key)
}

#[test]
fn keys_in_loops() {
    let f = |(xs, key): (Matrix<Traced>, Key)| {
        let (ys, keys, next) = draws(xs.clone(), key);
        let count = |i: Tensor<Traced, 1, Int>, x: Matrix<Traced>| {
            Array::new(dropout(x.val(), 0.8, Some(key.fold_in_tensor(i))))
        };
        let counted = fori_loop(0..4, count, xs.clone());
        let few = |(_, _, i): (Matrix<Traced>, Key, Array<Traced, 1, Int>)| i.val().lower_elem(3);
        let body = |(x, key, i): (Matrix<Traced>, Key, Array<Traced, 1, Int>)| {
            let (next, key) = key.split();
            (Array::new(x.val() + key.uniform([4, 6], -1.0, 1.0, &x.val().device())), next, Array::new(i.val() + 1))
        };
        let zero = Array::new(Tensor::zeros([1], &xs.val().device()));
        let (repeated, last, _) = while_loop(few, body, (xs.clone(), next, zero));
        let positive = xs.val().sum().greater_elem(0.0);
        let (chosen, own) = cond(positive, |key: Key| (keys.clone(), key.split().0), |key| (keys.clone(), key), last);
        let mapped = vmap(|(x, key): (Array<Traced, 1>, Key)| {
            let y = dropout(x.val(), 0.5, Some(key)) + key.fold_in(1).gumbel([6], &x.val().device());
            (Array::<_, 1>::new(y), key.fold_in(2))
        });
        let (mapped, folded) = mapped.call::<Traced, _>((xs.clone(), keys));
        let slope = grad(&xs, |xs| draws(xs, own).0.val().powf_scalar(2.0).sum());
        (ys, counted, repeated, (chosen, own), (mapped, folded, slope))
    };
    check("keys in loops", f, &(x(), Key::new(4)), 1e-5);
}

#[test]
fn orders_and_scans() {
    let special = [f32::NAN, 0.5, -0.0, 0.0, f32::INFINITY, 0.5, -2.0, f32::NEG_INFINITY];
    let special = Array::<Flex, 1>::new(Tensor::from_floats(special, &Default::default()));
    let orders = |x: Array<Traced, 1>| {
        let order = |descending| Array::<_, 1, Int>::new(grove_backend::ops::argsort(x.val(), 0, descending));
        (order(false), order(true), Array::<_, 1, Int>::new(top_k(x.val(), 0, 3).1))
    };
    check("special values in order", orders, &special, 0.0);
    let f = |(x, i): (Matrix<Traced>, Array<Traced, 1, Int>)| {
        let sorted = Array::<_, 2>::new(sort(x.val(), 0, true));
        let slope = grad(&x, |x| top_k(x.val(), 1, 2).0.powf_scalar(2.0).sum());
        let copied = Array::<_, 2>::new(index_copy(x.val(), 0, i.val(), x.val().narrow(0, 0, 3) * 3.0));
        let hot = Array::<_, 2>::new(one_hot::<Traced, 1, 2>(i.val(), 4));
        let sums =
            associative_scan(|a: Matrix<Traced>, b: Matrix<Traced>| Array::new(a.val() * 0.5 + b.val()), x.clone());
        let again = grad(&x, |x| remat(|x: Matrix<_>| Matrix::new(x.val().sin().exp()), x).val().sum());
        (sorted, slope, copied, hot, sums, again)
    };
    let i = Array::<Flex, 1, Int>::new(Tensor::from_ints([2, 0, 2], &Default::default()));
    check("orders and scans", f, &(x(), i), 1e-5);
}

/// A jitted function captures arrays of the device, and keys pass through loops on a recording device.
#[test]
fn arrays_and_keys_of_a_device() {
    let Some(device) = device() else { return };
    let lifted = grove_tree::to_backend::<Flex, Xla, _>(x(), &device);
    let (ys, keys, next) = draws(lifted.clone(), Key::new(3));
    let (expected, of_flex, own) = draws(x(), Key::new(3));
    let numbers = |x: Tensor<Xla, 2>| x.into_data().iter::<f32>().collect::<Vec<_>>();
    let close = |found: Vec<f32>, expected: Matrix<Flex>| {
        let expected = expected.val().into_data().iter::<f32>().collect::<Vec<_>>();
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {expected:?}");
    };
    close(numbers(ys.val()), expected);
    assert_eq!((keys.to_vec(), next), (of_flex.to_vec(), own));
    let captured = lifted.clone();
    let f = jit(move |x: Matrix<Traced>| Matrix::new(x.val() * captured.val())).on::<Xla>(&device);
    for _ in 0..2 {
        close(numbers(f.call(lifted.clone()).val()), Array::new(x().val() * x().val()));
    }
    assert_eq!(f.jit().graphs().len(), 1);
}

/// The process that `programs_print` starts.
#[test]
fn prints() {
    if std::env::var_os("GROVE_TEST_PRINTS").is_none() {
        return;
    }
    let Some(device) = device() else { return };
    let step = |c: Array<Traced, 1>, ()| (debug_print("step", Array::<_, 1>::new(c.val() + 1.0)), ());
    let f = move |x| {
        grove_compile::scan_with(grove_transform::Scan::new().length(2), &(), |(), c, ()| step(c, ()), x, ()).0
    };
    let x = Array::<Xla, 1>::new(Tensor::from_floats([1.0, 2.0], &device));
    let y = jit(f).on::<Xla>(&device).call(x).val().into_data();
    eprintln!("{:?}", y.to_vec::<f32>().unwrap());
}

#[test]
fn programs_print() {
    if shared().is_none() {
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "keys_and_loops::prints", "--nocapture"]).env("GROVE_TEST_PRINTS", "1");
    let printed = String::from_utf8(command.output().unwrap().stderr).unwrap();
    for line in ["step: f32[2] [2.0, 3.0]", "step: f32[2] [3.0, 4.0]", "[3.0, 4.0]"] {
        assert!(printed.lines().any(|printed| printed == line), "{printed}");
    }
}
