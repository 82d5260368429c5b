//! `fori_loop`, `associative_scan`, `remat` and `debug_print`, against JAX.

use crate::common;
use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{Autodiff, Backend, Flex};
use grove_compile::{Graph, Traced, associative_scan, debug_print, fori_loop, jit, jvp, remat, scan, trace, vmap};
use grove_transform::{grad, value_and_grad};
use grove_tree::{Array, Key};
use std::process::Command;

type B = Flex;
type Affine<B> = (Array<B, 1>, Array<B, 1>);

const V: [f32; 7] = [0.5, -1.2, 2.0, 0.7, -0.3, 1.1, 0.9];

fn array<const N: usize>(values: [f32; N]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn then<B: Backend>((a, b): Affine<B>, (c, d): Affine<B>) -> Affine<B> {
    (Array::new(a.val() * c.val()), Array::new(b.val() * c.val() + d.val()))
}

fn affine<B: Backend>(v: Array<B, 1>) -> Affine<B> {
    let xs = (v.clone(), Array::new(v.val().cos()));
    associative_scan(then, xs)
}

fn loss<B: Backend>(v: Array<B, 1>) -> Tensor<B, 1> {
    let (a, b) = affine(v);
    (a.val() * b.val()).sum()
}

#[test]
fn associative_scans_match_jax() {
    let expected = array([0.87758255, -0.6907414, -1.7976297, -0.49349856, 1.103386, 1.6673208, 2.1221988]);
    let slope = array([6.552765, -11.714498, 5.0516763, 5.0460844, -4.391425, 1.0079364, 0.80881226]);
    common::same::<B, _>("eager", &affine(array(V)).1, &expected, 1e-6, 1.0);
    let jitted = jit(|v: Array<Traced, 1>| affine(v).1);
    common::same::<B, _>("jit", &jitted.call::<B>(array(V)), &expected, 1e-6, 1.0);
    // 3 products for the values and 2 for the coefficients between them; a sequential loop has 6.
    let muls = jitted.graph().unwrap().counts()["mul"];
    assert!(muls <= 5, "{muls} products");
    common::same::<B, _>("grad", &grad(&array(V), loss), &slope, 1e-5, 1.0);
    let traced = jit(|v: Array<Traced, 1>| grad(&v, loss));
    common::same::<B, _>("jit of grad", &traced.call::<B>(array(V)), &slope, 1e-5, 1.0);
    for n in 1..40 {
        let v = Array::<B, 1>::new(Key::new(n as u64).normal([n], &Default::default()));
        let step = |(a, b): Affine<B>, (c, d): Affine<B>| {
            let next = then((a, b), (c, d));
            (next.clone(), next)
        };
        let rows = |x: Array<B, 1>| Array::<B, 2>::new(x.val().reshape([n, 1]));
        let start = (array([1.0]), array([0.0]));
        let (_, (a, b)) = scan(step, start, (rows(v.clone()), rows(Array::new(v.val().cos()))));
        let expected = [a, b].map(|x| Array::<B, 1>::new(x.val().reshape([n])));
        let found = affine(v);
        common::same::<B, _>("in order", &[found.0, found.1], &expected, 1e-5, 1.0);
    }
    let mapped = vmap(|v: Array<Traced, 1>| affine(v).1);
    let rows = Array::<B, 2>::new(Tensor::stack(vec![array(V).val() * 0.5, array(V).val()], 0));
    let last = Array::<B, 1>::new(mapped.call(rows).val().narrow(0, 1, 1).reshape([7]));
    common::same::<B, _>("vmap", &last, &expected, 1e-6, 1.0);
    let along = jvp(affine, &array(V), &array([1.0; 7])).1;
    let moved = |by: f32| affine(Array::<B, 1>::new(array(V).val() + by)).1.val();
    let difference = Array::<B, 1>::new((moved(1e-3) - moved(-1e-3)) / 2e-3);
    common::same::<B, _>("jvp", &along.1, &difference, 1e-3, 1.0);
}

fn repeated<B: Backend>(v: Array<B, 1>) -> Array<B, 1> {
    let step = |i: Tensor<B, 1, Int>, (c, v): Affine<B>| {
        let next = (c.val() * i.float()).sin() + v.val();
        (Array::new(next), v)
    };
    fori_loop(2..6, step, (v.clone(), v)).0
}

#[test]
fn loops_over_integers_match_jax() {
    let slope = array([8.947596, -5.7753563, 10.242217, 27.022387, 84.65372, 3.1604958, -21.353973]);
    let expected = array([-0.4349627, -1.0946622, 2.9664474, 0.12528592, -1.0148423, 1.239924, 1.2678772]);
    let jitted = jit(repeated);
    common::same::<B, _>("eager", &repeated(array(V)), &expected, 1e-5, 1.0);
    common::same::<B, _>("jit", &jitted.call::<B>(array(V)), &expected, 1e-5, 1.0);
    assert_eq!(jitted.graph().unwrap().counts().get("scan"), Some(&1));
    common::same::<B, _>("grad", &grad(&array(V), |v| repeated(v).val().sum()), &slope, 1e-5, 1.0);
    let traced = jit(|v: Array<Traced, 1>| grad(&v, |v| repeated(v).val().sum()));
    common::same::<B, _>("jit of grad", &traced.call::<B>(array(V)), &slope, 1e-5, 1.0);
    let rows = Array::<B, 2>::new(array(V).val().reshape([7, 1]));
    let mapped = Array::<B, 1>::new(vmap(repeated).call(rows).val().reshape([7]));
    common::same::<B, _>("vmap", &mapped, &expected, 1e-5, 1.0);
    let untouched = fori_loop(3..3, |_, x: Array<B, 1>| Array::new(x.val() * 2.0), array(V));
    common::same::<B, _>("no step", &untouched, &array(V), 0.0, 1.0);
}

/// A rematerialised part: the first sine occurs twice in the program of the gradient.
#[test]
fn a_part_is_computed_again() {
    fn f<B: Backend>((w, x): (Array<B, 1>, Array<B, 1>), again: bool) -> Tensor<B, 1> {
        let part = |(w, x): (Array<B, 1>, Array<B, 1>)| Array::<B, 1>::new((w.val() * x.val().sin()).exp().sin());
        let args = (w, x);
        (if again { remat(part, args) } else { part(args) }).val().powf_scalar(2.0).sum()
    }
    let args = || (array([0.3, -0.2, 1.5]), array([0.5, 1.0, -2.0]));
    let expected = value_and_grad(&args(), |args| f(args, false));
    let traced = |again: bool| {
        jit(move |args: Affine<Traced>| {
            let (value, slope) = value_and_grad(&args, |args| f(args, again));
            (Array::<_, 1>::new(value), slope)
        })
    };
    let (with, without) = (traced(true), traced(false));
    let expected = (Array::<B, 1>::new(expected.0), expected.1);
    for found in [with.call::<B>(args()), without.call::<B>(args())] {
        common::same::<B, _>("gradient", &found, &expected, 1e-6, 1.0);
    }
    let [with, without] = [with, without].map(|jitted| jitted.graph().unwrap());
    assert!(!without.counts().contains_key("checkpoint"));
    assert_eq!(with.counts()["checkpoint"], 2, "{with}");
    assert_eq!(with.to_string().matches("mul,exp,").count(), 2, "{with}");
    assert!(value_and_grad(&args(), |args| f(args, true)).0.into_scalar() == expected.0.val().into_scalar());
    let mapped = vmap(|args: Affine<Traced>| {
        let (value, slope) = value_and_grad(&args, |args| f::<Autodiff<Traced>>(args, true));
        (Array::<_, 1>::new(value), slope)
    });
    let rows = |x: Array<B, 1>| Array::<B, 2>::new(x.val().reshape([1, 3]));
    let (w, x) = args();
    let (_, (dw, dx)) = mapped.call((rows(w), rows(x)));
    common::same::<B, _>("vmap", &(dw, dx), &(rows(expected.1.0), rows(expected.1.1)), 1e-6, 1.0);
}

fn printing<B: Backend>(x: Array<B, 1>) -> Array<B, 1> {
    let y = debug_print(
        "square",
        (Array::<B, 1>::new(x.val().powf_scalar(2.0)), Array::<B, 1, Bool>::new(x.val().greater_elem(1.5))),
    );
    let step = |c: Array<B, 1>, ()| (debug_print("step", Array::<B, 1>::new(c.val() + 1.0)), ());
    let options = grove_transform::Scan::new().length(2);
    grove_compile::scan_with(options, &(), |(), c, ()| step(c, ()), y.0, ()).0
}

/// Runs in the subprocess that `values_are_printed_when_a_program_runs` starts.
#[test]
fn prints() {
    if std::env::var_os("GROVE_TEST_PRINTS").is_none() {
        return;
    }
    let f = jit(printing);
    eprintln!("traced");
    for _ in 0..2 {
        f.call::<B>(array([1.0, 2.0]));
    }
    eprintln!("vmap");
    let rows = Array::<B, 2>::new(Tensor::from_floats([[1.0, 2.0], [3.0, 4.0]], &Default::default()));
    vmap(|x: Array<Traced, 1>| debug_print("rows", x)).call(rows);
    eprintln!("grad");
    let slope = grad(&array([3.0]), |x| debug_print("x", x).val().powf_scalar(2.0));
    let (_, tangent) = jvp(|x: Array<Traced, 1>| debug_print("y", x), &array([3.0]), &array([5.0]));
    eprintln!("{} {}", slope.val().into_scalar(), tangent.val().into_scalar());
}

#[test]
fn values_are_printed_when_a_program_runs() {
    let this = std::env::current_exe().unwrap();
    let mut command = Command::new(this);
    command.args(["--exact", "functional_loops::prints", "--nocapture"]).env("GROVE_TEST_PRINTS", "1");
    let printed = String::from_utf8(command.output().unwrap().stderr).unwrap();
    let lines: Vec<&str> = printed.lines().collect();
    let once = ["square.0: f32[2] [1.0, 4.0]", "step: f32[2] [2.0, 5.0]", "step: f32[2] [3.0, 6.0]"];
    // Unused values are not printed.
    let expected = [
        &["traced"][..],
        &once,
        &once,
        &["vmap", "rows: f32[2,2] [1.0, 2.0, 3.0, 4.0]", "grad", "x: f32[1] [3.0]", "y: f32[1] [3.0]", "6 5"],
    ];
    assert_eq!(lines, expected.concat(), "{printed}");
}

#[test]
fn new_operations_are_stored() {
    let graph = trace(
        |x: Array<Traced, 1>| {
            let y = debug_print("x", remat(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val().sin()), x));
            Array::<_, 1>::new(grove_backend::ops::sort(y.val(), 0, true))
        },
        &array(V),
    );
    assert_eq!(Graph::from_json(&graph.to_json().unwrap()).unwrap(), graph);
    assert!(graph.to_string().contains("debug_print[name=x]") && graph.to_string().contains("argsort["), "{graph}");
}
