//! Functions that capture arrays of an enclosing trace, for every pair of transformations.

use crate::common;
use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend, Flex};
use grove_compile::{
    CustomVjp, Traced, cond, custom_vjp, fori_loop, hessian, hvp, jacfwd, jacrev, jit, jvp, linearize, remat, scan,
    vmap, while_loop,
};
use grove_layers::dropout;
use grove_transform::{from_inner, grad};
use grove_tree::{Array, Key};
use std::sync::{Mutex, mpsc};

type B = Flex;
type A = Array<Traced, 1>;
type Inner = fn(&A, &A) -> A;
type Outer = fn(Inner, &A) -> A;

fn array(values: [f32; 3]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn new(x: Tensor<Traced, 1>) -> A {
    Array::new(x)
}

fn lift(x: &A) -> Tensor<Autodiff<Traced>, 1> {
    from_inner::<Traced, _>(x.clone()).val()
}

/// Functions of `x` in which another function captures `c`. Each computes `c * sin(x) * c` or a derivative of it.
const INNER: [(&str, Inner); 14] = [
    ("jit", |c, x| {
        let c = c.clone();
        jit(move |x: A| new(c.val() * x.val().sin() * c.val())).call::<Traced>(x.clone())
    }),
    ("vmap", |c, x| {
        let c = c.clone();
        let rows = Array::<Traced, 2>::new(x.val().reshape([1, 3]).repeat_dim(0, 2));
        let y = vmap(move |x: A| new(c.val() * x.val().sin() * c.val())).call::<Traced, _>(rows);
        new(y.val().mean_dim(0).reshape([3]))
    }),
    ("jvp", |c, x| jvp(|x: A| new(c.val() * x.val().sin() * c.val()), x, c).1),
    ("linearize", |c, x| linearize(|x: A| new(c.val() * x.val().sin() * c.val()), x).1.call(x)),
    ("jacfwd", |c, x| {
        let matrix = jacfwd(|x: A| new(c.val() * x.val().sin() * c.val()), x).array::<2>();
        new(matrix.val().sum_dim(0).reshape([3]))
    }),
    ("jacrev", |c, x| {
        let f = |x: Array<Autodiff<Traced>, 1>| Array::<_, 1>::new(lift(c) * x.val().sin() * lift(c));
        new(jacrev::<Traced, _, _, _>(f, x).array::<2>().val().sum_dim(0).reshape([3]))
    }),
    ("hvp", |c, x| hvp::<Traced, A, _>(|x| (lift(c) * x.val().sin() * lift(c)).sum(), x, c)),
    ("hessian", |c, x| {
        let matrix = hessian::<Traced, A, _>(|x| (lift(c) * x.val().sin() * lift(c)).sum(), x).array::<2>();
        new(matrix.val().sum_dim(0).reshape([3]))
    }),
    ("grad", |c, x| grad(x, |x| (lift(c) * x.val().sin() * lift(c)).sum())),
    ("scan", |c, x| {
        let rows = Array::<Traced, 2>::new(x.val().reshape([1, 3]).repeat_dim(0, 2));
        scan(|sum: A, x: A| (new(sum.val() + c.val() * x.val().sin() * c.val()), ()), new(x.val().zeros_like()), rows).0
    }),
    ("fori_loop", |c, x| fori_loop(0..2, |i, y: A| new(y.val() + c.val() * x.val().sin() * i.float()), c.clone())),
    ("while", |c, x| {
        let few = |y: A| y.val().sum().abs().lower_elem(50.0);
        while_loop(few, |y: A| new(y.val() * 2.0 + c.val().abs() + x.val().sin().abs()), new(c.val().abs() + 1.0))
    }),
    ("cond", |c, x| {
        let yes = |x: A| new(c.val() * x.val().sin() * c.val());
        cond(c.val().sum().greater_elem(0.0), yes, |x: A| x, x.clone())
    }),
    ("checkpoint", |c, x| remat(|x: A| new(c.val() * x.val().sin() * c.val()), x.clone())),
];

/// Outer transformations of a function of `c` and `x`, both of which depend on the argument.
const OUTER: [(&str, Outer); 9] = [
    ("jit", |inner, x| jit(move |x: A| both(inner, &x)).call::<Traced>(x.clone())),
    ("vmap", |inner, x| {
        let rows =
            Array::<Traced, 2>::new(Tensor::cat(vec![x.val().reshape([1, 3]), x.val().reshape([1, 3]) * 0.5], 0));
        let y = vmap(move |x: A| both(inner, &x)).call::<Traced, _>(rows);
        new(y.val().sum_dim(0).reshape([3]))
    }),
    ("jvp", |inner, x| jvp(|x: A| both(inner, &x), x, &new(x.val().ones_like())).1),
    ("linearize", |inner, x| linearize(|x: A| both(inner, &x), x).1.call(&new(x.val().ones_like()))),
    ("jacfwd", |inner, x| {
        let matrix = jacfwd(|x: A| both(inner, &x), x).array::<2>();
        new(matrix.val().sum_dim(1).reshape([3]))
    }),
    ("scan", |inner, x| {
        let rows = Array::<Traced, 2>::new(x.val().reshape([1, 3]));
        scan(|sum: A, x: A| (new(sum.val() + both(inner, &x).val()), ()), new(x.val().zeros_like()), rows).0
    }),
    ("cond", |inner, x| cond(x.val().sum().greater_elem(-9.0), |x: A| both(inner, &x), |x: A| x, x.clone())),
    ("while", |inner, x| {
        let few = |(_, i): (A, A)| i.val().sum().lower_elem(0.5);
        let once = |(x, i): (A, A)| (both(inner, &x), new(i.val() + 1.0));
        while_loop(few, once, (x.clone(), new(x.val().zeros_like()))).0
    }),
    ("checkpoint", |inner, x| remat(|x: A| both(inner, &x), x.clone())),
];

/// Calls an inner function whose captured array and argument depend on the outer argument.
fn both(inner: Inner, x: &A) -> A {
    inner(&new(x.val() * 0.5 + 0.3), &new(x.val() * x.val()))
}

/// Returns the expected result of an outer transformation; derivatives are computed by finite differences.
fn expected(outer: &str, inner: Inner, x: &Array<B, 1>) -> Array<B, 1> {
    let f = |x: &Array<B, 1>| jit(move |x: A| both(inner, &x)).call::<B>(x.clone()).val();
    Array::new(match outer {
        "vmap" => f(x) + f(&Array::new(x.val() * 0.5)),
        "jvp" | "linearize" | "jacfwd" => {
            let moved = |by: f32| f(&Array::new(x.val() + by));
            (moved(1e-2) - moved(-1e-2)) / 2e-2
        }
        _ => f(x),
    })
}

fn check_every_pair() {
    let x = array([0.3, -0.4, 0.9]);
    for (inner_name, inner) in INNER {
        for (outer_name, outer) in OUTER {
            let found = jit(move |x: A| outer(inner, &x)).call::<B>(x.clone());
            let what = format!("{inner_name} in {outer_name}");
            let tolerance = if matches!(outer_name, "jvp" | "linearize" | "jacfwd") { 5e-3 } else { 1e-5 };
            common::same::<B, _>(&what, &found, &expected(outer_name, inner, &x), tolerance, 1.0);
        }
    }
}

#[test]
fn every_inner_function_captures_arrays_of_every_outer_one() {
    check_every_pair();
}

/// The identity. Its backward pass calls a function.
#[derive(Clone, Debug)]
struct Calls(fn());

impl CustomVjp for Calls {
    type Args<B: Backend> = Array<B, 1>;
    type Output<B: Backend> = Array<B, 1>;
    type Residuals<B: Backend> = ();

    fn forward<B: Backend>(&self, x: Array<B, 1>) -> (Array<B, 1>, ()) {
        (x, ())
    }

    fn backward<B: Backend>(&self, (): (), grad: Array<B, 1>) -> Array<B, 1> {
        (self.0)();
        grad
    }
}

/// Calls a function during a backward pass, on the thread of the pass and on another one.
fn during_a_backward_pass(f: fn()) {
    let on_its_thread = Calls(f);
    grad(&array([1.0; 3]), |x| custom_vjp(&on_its_thread, x).val().sum());
    std::thread::scope(|scope| {
        let (begin, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        scope.spawn(move || {
            begun.recv().unwrap();
            f();
            drop(end);
        });
        *WAITS.lock().unwrap() = Some((begin, ended));
        let waits = || {
            let (begin, ended) = WAITS.lock().unwrap().take().unwrap();
            begin.send(()).unwrap();
            ended.recv().unwrap_err();
        };
        grad(&array([1.0; 3]), |x| custom_vjp(&Calls(waits), x).val().sum());
    });
}

static WAITS: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>> = Mutex::new(None);

#[test]
fn captured_arrays_while_another_gradient_is_computed() {
    during_a_backward_pass(check_every_pair);
}

/// The gradient of a rematerialised branch that captured an array of the outer gradient.
fn check_gradient_of_gradient() {
    type Twice = Autodiff<Autodiff<B>>;
    let x = array([0.3, -0.4, 0.9]);
    let slope = grad(&x, |x: Array<Autodiff<B>, 1>| {
        let inner = |y: Array<Autodiff<B>, 1>| {
            Array::<_, 1>::new(
                grad(&y, |y: Array<Twice, 1>| {
                    let x = from_inner::<Autodiff<B>, _>(x.clone());
                    remat(|y: Array<Twice, 1>| Array::<_, 1>::new(x.val() * y.val() * y.val()), y).val().sum()
                })
                .val(),
            )
        };
        let yes = x.val().sum().greater_elem(0.0);
        cond(yes, inner, |y| y, Array::<_, 1>::new(x.val().ones_like())).val().sum()
    });
    common::same::<B, _>("slope", &slope, &array([2.0; 3]), 1e-6, 1.0);
}

#[test]
fn gradients_of_gradients_while_another_gradient_is_computed() {
    check_gradient_of_gradient();
    during_a_backward_pass(check_gradient_of_gradient);
}

/// Traces record only keys of their own thread.
#[test]
fn random_numbers_that_are_drawn_again_while_another_gradient_is_computed() {
    fn check() {
        let slope = |key: Key, x: &A| {
            let drop =
                move |x: Array<Autodiff<Traced>, 1>| Array::<_, 1>::new(dropout(x.val(), 0.5, Some(key.fold_in(1))));
            grad(x, |x| remat(drop, remat(drop, x)).val().sum())
        };
        let f = jit(move |(x, key): (A, Key)| slope(key, &x));
        let x = array([1.0; 3]);
        for seed in 0..4 {
            let key = Key::new(seed);
            let ones = Array::<B, 1>::new(x.val().ones_like());
            let expected = Array::<B, 1>::new(dropout(ones.val(), 0.5, Some(key.fold_in(1))).powf_scalar(2.0));
            common::same::<B, _>("slope", &f.call::<B>((x.clone(), key)), &expected, 1e-6, 1.0);
        }
    }
    check();
    during_a_backward_pass(check);
}

/// Compares nested transformations with values from JAX.
#[test]
fn numbers_of_jax() {
    fn f(x: A) -> A {
        let rows = Array::<Traced, 2>::new(x.val().reshape([3, 1]).matmul(x.val().reshape([1, 3])));
        let row = move |r: A| {
            let (_, slope) = jvp(|t: A| new(t.val().powf_scalar(2.0) * r.val().sin() * x.val()), &r, &x);
            let second = hvp::<Traced, A, _>(|t| (t.val().powf_scalar(3.0) * lift(&r)).sum(), &x, &r);
            new(slope.val() + second.val())
        };
        let y = vmap(row).call::<Traced, _>(rows);
        new(y.val().sum_dim(0).reshape([3]))
    }
    let x = array([0.3, -0.4, 0.9]);
    common::same::<B, _>("value", &jit(f).call::<B>(x.clone()), &array(JAX_VALUE), 1e-5, 1.0);
    let slope = jvp(f, &x, &array([1.0, 2.0, -1.0])).1;
    common::same::<B, _>("slope", &slope, &array(JAX_SLOPE), 1e-5, 1.0);
}

const JAX_VALUE: [f32; 3] = [0.188725, -0.35370395, 5.9089637];
const JAX_SLOPE: [f32; 3] = [1.4446659, 5.984514, -36.21452];

/// A jitted function that captures an array is traced again for each enclosing trace, and is not cached within one.
#[test]
fn a_program_does_not_outlive_what_it_captured() {
    let outer = jit(|(x, y): (A, A)| {
        let inner = jit(move |y: A| new(y.val() * x.val()));
        let first = inner.call::<Traced>(y.clone());
        assert!(inner.graphs().is_empty(), "its array ends with the trace");
        inner.call::<Traced>(first)
    });
    for factor in [1.0, 2.0] {
        let (x, y) = (array([1.0, 2.0, 3.0]), Array::<B, 1>::new(array([1.0, 1.0, 2.0]).val() * factor));
        let found = outer.call::<B>((x.clone(), y.clone()));
        common::same::<B, _>("twice", &found, &Array::<B, 1>::new(y.val() * x.val() * x.val()), 1e-6, 1.0);
    }
    assert_eq!(outer.graphs().len(), 1);
}

#[test]
fn captured_keys_that_are_arrays() {
    let f = jit(|(xs, key): (Array<Traced, 2>, Key)| {
        let step = |key: Key, x: A| {
            let (next, key) = key.split();
            let drop = move |x: A| new(dropout(x.val(), 0.5, Some(key)));
            let (value, slope) = jvp(drop, &x, &x);
            (next, (value, slope, jit(drop).call::<Traced>(x)))
        };
        scan(step, key, xs).1
    });
    let xs = Array::<B, 2>::new(Key::new(3).normal([4, 3], &Default::default()));
    let (value, slope, jitted) = f.call::<B>((xs.clone(), Key::new(1)));
    let mut key = Key::new(1);
    for i in 0..4 {
        let row = |array: &Array<B, 2>| Array::<B, 1>::new(array.val().narrow(0, i, 1).reshape([3]));
        let (next, own) = key.split();
        let expected = Array::<B, 1>::new(dropout(row(&xs).val(), 0.5, Some(own)));
        for found in [&value, &slope, &jitted] {
            common::same::<B, _>("row", &row(found), &expected, 1e-6, 1.0);
        }
        key = next;
    }
}

#[test]
#[should_panic(expected = "a function that is called on arrays with values uses an array [3] of an enclosing trace")]
fn arrays_with_values_do_not_meet_captured_ones() {
    jit(|x: A| {
        let values = array([1.0; 3]);
        let y = vmap(move |row: Array<Traced, 1>| new(row.val() * x.val()))
            .call::<B, _>(Array::<B, 2>::new(values.val().reshape([1, 3])));
        new(Tensor::from_data(y.val().reshape([3]).into_data(), &Default::default()))
    })
    .call::<B>(array([1.0; 3]));
}
