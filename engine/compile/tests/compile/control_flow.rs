//! Conditionals and loops outside traces, in traces, jitted, differentiated and mapped, against loops and closed forms.

use crate::common;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Candle, Flex};
use grove_compile::{Shared, Traced, cond, jacfwd, jit, jvp, linearize, scan, switch, trace, vmap, while_loop};
use grove_transform::{grad, value_and_grad};
use grove_tree::{Array, Key, Tree};
use std::panic::{AssertUnwindSafe, catch_unwind};

type F = Flex;
type A1<B> = Array<B, 1>;
type A2<B> = Array<B, 2>;

fn array<const N: usize>(values: [f32; N]) -> A1<F> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn normal<const D: usize>(shape: [usize; D], seed: u64) -> Array<F, D> {
    Array::new(Key::new(seed).normal(shape, &Default::default()) * 0.5)
}

fn truth(value: bool) -> Array<F, 1, Bool> {
    Array::new(Tensor::from_data(TensorData::from([value]), &Default::default()))
}

fn int(value: i64) -> Array<F, 1, Int> {
    Array::new(Tensor::from_ints([value], &Default::default()))
}

fn floats<B: Backend, const D: usize>(x: &Array<B, D>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

fn same<T: Tree<F>>(what: &str, found: &T, expected: &T) {
    common::same::<F, T>(what, found, expected, 1e-5, 1e-3);
}

/// Returns the message of a panic.
fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// Computes `sin x` or `x^2 y`.
fn branch<B: Backend>((pred, x, y): (Array<B, 1, Bool>, A1<B>, A1<B>)) -> (A1<B>, A1<B>) {
    let sine = |(x, y): (A1<B>, A1<B>)| (Array::new(x.val().sin()), y);
    let product = |(x, y): (A1<B>, A1<B>)| (Array::new(x.val().powf_scalar(2.0) * y.val()), y);
    cond(pred.val(), sine, product, (x, y))
}

/// Computes a power of `x`.
fn power<B: Backend>((index, x): (Array<B, 1, Int>, A1<B>)) -> A1<B> {
    let [one, two, three] = [1, 2, 3].map(|n| move |x: A1<B>| Array::<B, 1>::new(x.val().powi_scalar(n)));
    switch(index.val(), &[&one, &two, &three], x)
}

#[test]
fn branches_are_the_same_traced_and_not() {
    let jitted = jit(branch::<Traced>);
    for pred in [true, false] {
        let args = (truth(pred), array([1.0, 2.0]), array([3.0, 4.0]));
        let expected = branch(args.clone());
        let closed = if pred { [1f32.sin(), 2f32.sin()] } else { [3.0, 16.0] };
        same("closed form", &expected.0, &array(closed));
        same("jitted", &jitted.call::<F>(args.clone()), &expected);
        let graph = trace(branch::<Traced>, &args);
        assert_eq!(graph.counts().keys().collect::<Vec<_>>(), ["cond"], "{graph}");
        let found = graph.eval(&args).remove(0).into_float::<1>().unwrap();
        same("evaluated", &Array::new(found), &expected.0);
    }
    let jitted = jit(power::<Traced>);
    for (index, expected) in [(-3, [2.0]), (0, [2.0]), (1, [4.0]), (2, [8.0]), (9, [8.0])] {
        let args = (int(index), array([2.0]));
        assert_eq!(floats(&power(args.clone())), expected);
        assert_eq!(floats(&jitted.call::<F>(args)), expected);
    }
}

#[test]
fn branches_and_loops_on_candle() {
    fn f<B: Backend>(x: A1<B>) -> A1<B> {
        let halved = |x: A1<B>| while_loop(|x: A1<B>| x.val().greater_elem(1.0), |x| Array::new(x.val() / 2.0), x);
        cond(x.val().greater_elem(0.0), halved, |x| Array::new(x.val() * 3.0), x)
    }
    let jitted = jit(f::<Traced>);
    for (x, expected) in [(6.0, 0.75), (-2.0, -6.0)] {
        let x = Array::<Candle, 1>::new(Tensor::from_floats([x], &Default::default()));
        assert_eq!((floats(&f(x.clone())), floats(&jitted.call::<Candle>(x))), (vec![expected], vec![expected]));
    }
    let xs = Array::<Candle, 2>::new(Tensor::from_floats([[1.0], [2.0]], &Default::default()));
    let one = Array::<Candle, 1>::new(Tensor::ones([1], &Default::default()));
    let (last, _) = jit(|(one, xs)| scan(leaky, one, xs)).call::<Candle>((one, xs));
    assert_eq!(floats(&last), [2.75]);
}

/// Computes `0.5 c + x`, with the old carry as output.
fn leaky<B: Backend>(c: A1<B>, x: A1<B>) -> (A1<B>, A1<B>) {
    (Array::new(c.val() * 0.5 + x.val()), c)
}

#[test]
fn the_text_of_a_graph_holds_its_sub_graphs() {
    let args = (truth(true), array([1.0, 2.0]), array([3.0, 4.0]));
    let text = trace(|args| branch::<Traced>(args).0, &args).to_string();
    let expected = "{ lambda ; a:bool[1] b:f32[2] c:f32[2] . let\n    d:f32[2] = cond[\n      branches=(\n        \
                    { lambda ; a:f32[2] b:f32[2] . let\n            c:f32[2] = mul a a\n            d:f32[2] = mul c b\n          \
                    in (d,) }\n        { lambda ; a:f32[2] b:f32[2] . let\n            c:f32[2] = sin a\n          in (c,) }\n      \
                    )\n    ] a b c\n  in (d,) }";
    assert_eq!(text, expected);
    let dot = trace(branch::<Traced>, &args).to_dot();
    for part in
        ["equation0 [label=\"cond\"]", "subgraph cluster_equation0_1_ {", "equation0_1_input0 -> equation0_1_equation0"]
    {
        assert!(dot.contains(part), "{part}\n{dot}");
    }
}

#[test]
fn branches_use_arrays_of_the_trace_around_them() {
    fn f<B: Backend>((pred, x, w): (Array<B, 1, Bool>, A1<B>, A1<B>)) -> A1<B> {
        let scale = w.val().exp();
        let inner = |x: A1<B>| {
            // Nested twice, with a function of the captured array only.
            let more = |x: A1<B>| Array::<B, 1>::new(x.val() * scale.clone().log() + w.val());
            cond(x.val().sum().greater_elem(0.0), more, |x| x, x)
        };
        cond(pred.val(), inner, |_| w.clone(), x)
    }
    let jitted = jit(f::<Traced>);
    for (pred, x) in [(true, 2.0), (true, -2.0), (false, 2.0)] {
        let args = (truth(pred), array([x]), array([3.0]));
        same("captured", &jitted.call::<F>(args.clone()), &f(args));
    }
    let loops = |(x, w): (A1<Traced>, A1<Traced>)| {
        let below = |x: A1<Traced>| (x.val() - w.val() * 10.0).lower_elem(0.0);
        while_loop(below, |x| Array::new(x.val() * w.val()), x)
    };
    assert_eq!(floats(&jit(loops).call::<F>((array([1.0]), array([3.0])))), [81.0]);
}

#[test]
fn both_branches_give_one_structure() {
    let args = (truth(true), array([1.0, 2.0]));
    let message = panic_of(|| {
        let f = |(pred, x): (Array<Traced, 1, Bool>, A1<Traced>)| {
            cond(pred.val(), |x: A1<Traced>| (x.clone(), x), |x| (x.clone(), Array::new(x.val().sum())), x)
        };
        trace(f, &args)
    });
    assert!(message.contains("the leaf `1` of `false_fn` is f32[1], and of `true_fn` f32[2]"), "{message}");
    let message = panic_of(|| {
        let f = |(pred, x): (Array<Traced, 1, Bool>, A1<Traced>)| {
            cond(pred.val(), |x: A1<Traced>| vec![x], |x| vec![x.clone(), x], x)
        };
        trace(f, &args)
    });
    assert!(message.contains("the branches of `cond` must return results of the same structure"), "{message}");
    let message = panic_of(|| {
        let grow = |x: A1<Traced>, _: A1<Traced>| (Array::new(Tensor::cat(vec![x.val(), x.val()], 0)), ());
        trace(|(x, xs)| scan(grow, x, xs).0, &(array([1.0]), normal([3, 1], 0)))
    });
    assert!(
        message.contains("the carry of `scan`") && message.contains("of `init` is f32[1], and of `f` f32[2]"),
        "{message}"
    );
    let message = panic_of(|| {
        let grow = |x: A1<Traced>| Array::new(Tensor::cat(vec![x.val(), x.val()], 0));
        trace(|x| while_loop(|x: A1<Traced>| x.val().sum().lower_elem(3.0), grow, x), &array([1.0]))
    });
    assert!(message.contains("the carry of `while_loop`"), "{message}");
    let message = panic_of(|| {
        trace(|x: A1<Traced>| cond(x.val().greater_elem(0.0), |x| x, |x: A1<Traced>| x, x), &array([1.0, 2.0]))
    });
    assert!(message.contains("has shape [2]"), "{message}");
}

#[test]
fn gradients_of_branches() {
    fn loss<B: Backend>(args: (Array<B, 1, Bool>, A1<B>, A1<B>)) -> Tensor<B, 1> {
        let (x, y) = branch(args);
        (x.val() * 3.0 + y.val()).sum()
    }
    for pred in [true, false] {
        let graph = gradients!(
            "branch",
            loss,
            (Array<Traced, 1, Bool>, A1<Traced>, A1<Traced>),
            (truth(pred), array([1.0, 2.0]), array([3.0, 4.0]))
        );
        assert_eq!(graph.counts()["cond"], 2, "{graph}");
    }
    fn powers<B: Backend>((index, x): (Array<B, 1, Int>, A1<B>)) -> Tensor<B, 1> {
        power((index, x)).val().sum()
    }
    for index in 0..3 {
        gradients!("switch", powers, (Array<Traced, 1, Int>, A1<Traced>), (int(index), array([1.5, -2.0])));
    }
    // The gradient of the branch that is not taken has no effect.
    fn safe_log<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        cond(x.val().greater_elem(0.0), |x: A1<B>| Array::<B, 1>::new(x.val().log()), |x| Array::new(x.val() * 0.0), x)
            .val()
    }
    for x in [0.0, 2.0] {
        gradients!("log", safe_log, A1<Traced>, array([x]));
    }
}

#[test]
fn gradients_flow_to_what_functions_capture() {
    fn loss<B: Backend>((w, pred, xs): (A1<B>, Array<B, 1, Bool>, A2<B>)) -> Tensor<B, 1> {
        let scaled = w.val() * 2.0;
        let step = |c: A1<B>, x: A1<B>| {
            let c = Array::<B, 1>::new((c.val() * scaled.clone() + x.val()).tanh());
            (c.clone(), c)
        };
        let (last, ys) = scan(step, Array::new(w.val().detach()), xs);
        let chosen =
            cond(pred.val(), |x: A1<B>| Array::<B, 1>::new(x.val() * w.val()), |x| Array::new(x.val() + w.val()), last);
        chosen.val().sum() + ys.val().sum()
    }
    for pred in [true, false] {
        gradients!(
            "captured",
            loss,
            (A1<Traced>, Array<Traced, 1, Bool>, A2<Traced>),
            (array([0.3, -0.4]), truth(pred), normal([4, 2], 1))
        );
    }
}

/// Returns the first and second derivative of a jitted function, and the operations of its graph.
macro_rules! derivatives {
    ($f:ident, $x:expr) => {{
        let first = jit(|x: A1<Traced>| grad(&x, $f));
        let second = jit(|x: A1<Traced>| grad(&x, |x: A1<Autodiff<Traced>>| grad(&x, $f).val().sum()));
        let x = array([$x]);
        let found = [floats(&first.call::<F>(x.clone()))[0], floats(&second.call::<F>(x))[0]];
        (found, first.graph().expect("a graph").counts())
    }};
}

/// The expected derivatives are from JAX 0.10.2.
#[test]
fn arrays_that_branches_and_loops_capture_are_their_operands() {
    fn logs<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        let y = x.val() * 2.0;
        let log = |z: A1<B>| Array::<B, 1>::new(y.clone().log() + z.val());
        let product = |z: A1<B>| Array::new(y.clone() * z.val());
        cond(x.val().greater_elem(0.0), log, product, Array::new(x.val() * 3.0)).val()
    }
    fn as_it_is<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        let y = x.val().sin();
        let itself = |_: A1<B>| Array::<B, 1>::new(y.clone());
        let root = |z: A1<B>| Array::new(z.val() * y.clone().sqrt());
        let inverse = |_: A1<B>| Array::new(y.clone().recip());
        let index = x.val().greater_elem(0.0).int() * 2 + x.val().equal_elem(0.0).int();
        switch(index, &[&itself, &root, &inverse], x).val()
    }
    fn nested<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        let square = x.val() * x.val();
        let step = |c: A1<B>, s: A1<B>| {
            let root = |c: A1<B>| Array::<B, 1>::new(c.val() * (square.clone() * s.val()).sqrt());
            let log = |c: A1<B>| Array::<B, 1>::new(c.val() * square.clone().log());
            let sum = |c: A1<B>| Array::new(c.val() + square.clone() * x.val());
            let otherwise = |c: A1<B>| cond(x.val().greater_elem(0.0), log, sum, c);
            let c = cond(s.val().greater_elem(0.0), root, otherwise, c);
            (c.clone(), Array::<B, 1>::new(c.val() + x.val()))
        };
        let steps = Tensor::from_floats([[1.0], [0.0], [2.0], [-1.0]], &x.val().device());
        let (last, ys) = scan(step, Array::new(x.val() * 0.0 + 1.0), A2::<B>::new(steps));
        last.val() + ys.val().sum()
    }
    let near = |found: [f32; 2], expected: [f32; 2]| {
        let close = found.iter().zip(expected).all(|(x, y)| (x - y).abs() <= 1e-4 * y.abs().max(1.0));
        assert!(close, "{found:?} are not {expected:?}");
    };
    for (x, expected) in [(0.0, [0.0, 12.0]), (2.0, [3.5, -0.25]), (-1.0, [-12.0, 12.0])] {
        let (found, counts) = derivatives!(logs, x);
        near(found, expected);
        assert!(counts.contains_key("cond"), "{counts:?}");
    }
    for (x, expected) in [(2.0, [0.503309, 1.5604365]), (-1.0, [0.5403023, 0.84147096])] {
        let (found, counts) = derivatives!(as_it_is, x);
        near(found, expected);
        assert!(counts.contains_key("cond"), "{counts:?}");
    }
    for (x, expected) in [(2.0, [74.99629, 93.95753]), (-1.0, [19.485281, -60.426403])] {
        let (found, counts) = derivatives!(nested, x);
        near(found, expected);
        assert!(counts.contains_key("scan"), "{counts:?}");
    }
}

#[test]
fn forward_mode_of_branches_and_loops() {
    let branch_of = |pred: bool| {
        move |(x, y): (A1<Traced>, A1<Traced>)| {
            let pred = Array::new(Tensor::from_data(TensorData::from([pred]), &x.val().device()));
            branch((pred, x, y)).0
        }
    };
    let (x, y) = (array([1.5]), array([3.0]));
    for (pred, expected) in [(true, 1.5f32.cos()), (false, 2.0 * 1.5 * 3.0)] {
        let (_, slope) = jvp(branch_of(pred), &(x.clone(), y.clone()), &(array([1.0]), Array::absent([1])));
        assert!((slope.val().into_scalar() - expected).abs() < 1e-5);
        let slopes = jacfwd(branch_of(pred), &(x.clone(), y.clone()));
        let block = slopes.get("", "0").unwrap().clone().into_data().unwrap().to_vec::<f32>().unwrap();
        assert!((block[0] - expected).abs() < 1e-5);
    }
    // `x -> x^2` while below 100: 3 -> 81 -> 6561, so the result is x^8.
    let f = |x: A1<Traced>| while_loop(|x: A1<Traced>| x.val().lower_elem(100.0), |x| Array::new(x.val() * x.val()), x);
    let (value, slope) = jvp(f, &array([3.0]), &array([1.0]));
    assert_eq!((value.val().into_scalar(), slope.val().into_scalar()), (6561.0, 8.0 * 3f32.powi(7)));
    let (_, linear) = linearize(f, &array([3.0]));
    assert_eq!(linear.call(&array([2.0])).val().into_scalar(), 16.0 * 3f32.powi(7));
}

#[test]
fn loops_have_no_reverse_mode_in_traces() {
    fn loss<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        while_loop(|x: A1<B>| x.val().lower_elem(100.0), |x| Array::new(x.val() * x.val()), x).val()
    }
    assert_eq!(grad(&array([3.0]), loss).val().into_scalar(), 8.0 * 3f32.powi(7));
    let message = panic_of(|| jit(|x: A1<Traced>| grad(&x, loss)).call::<F>(array([3.0])));
    assert!(message.contains("cannot be differentiated in reverse mode"), "{message}");
    let message = panic_of(|| {
        let captured = |x: A1<Autodiff<Traced>>| {
            let zero = Array::new(x.val().detach() * 0.0);
            while_loop(|c: A1<_>| c.val().lower_elem(1.0), |c| Array::new(c.val() + x.val()), zero).val()
        };
        jit(move |x: A1<Traced>| grad(&x, captured)).call::<F>(array([3.0]))
    });
    assert!(message.contains("an array that `body_fun` captures"), "{message}");
    // Loops through which no gradient flows are allowed.
    let detached = |x: A1<Autodiff<Traced>>| {
        let steps = while_loop(
            |c: A1<_>| c.val().lower_elem(100.0),
            |c| Array::new(c.val() * 2.0),
            Array::new(x.val().detach()),
        );
        (x.val() * steps.val()).sum()
    };
    assert_eq!(floats(&jit(move |x: A1<Traced>| grad(&x, detached)).call::<F>(array([3.0]))), [192.0]);
}

#[test]
fn mapped_branches_and_loops() {
    let xs = normal([5, 2], 1);
    let ys = normal([5, 2], 2);
    let preds = [true, false, false, true, true];
    let all = Array::<F, 2, Bool>::new(
        Tensor::<F, 1, Bool>::from_data(TensorData::from(preds), &Default::default()).reshape([5, 1]),
    );
    let row = |x: &A2<F>, i: usize| A1::<F>::new(x.val().narrow(0, i, 1).reshape([-1]));
    let mapped = vmap(branch::<Traced>);
    let found = mapped.call::<F, _>((all, xs.clone(), Shared(row(&ys, 0))));
    for (i, pred) in preds.into_iter().enumerate() {
        let expected = branch((truth(pred), row(&xs, i), row(&ys, 0)));
        same("batched predicate", &row(&found.0, i), &expected.0);
    }
    let found = mapped.call::<F, _>((Shared(truth(false)), xs.clone(), ys.clone()));
    for i in 0..5 {
        same("shared predicate", &row(&found.0, i), &branch((truth(false), row(&xs, i), row(&ys, i))).0);
    }
    let indices = Array::<F, 2, Int>::new(Tensor::from_ints([[0], [1], [2], [7], [-1]], &Default::default()));
    let found = vmap(power::<Traced>).call::<F, _>((indices, xs.clone()));
    for (i, index) in [0, 1, 2, 7, -1].into_iter().enumerate() {
        same("indices", &row(&found, i), &power((int(index), row(&xs, i))));
    }
    // Loops that end at different times, with a shared limit and with one limit per example.
    fn doubled<B: Backend>((x, limit): (A1<B>, A1<B>)) -> (A1<B>, Array<B, 1, Int>) {
        let zero = Array::new(x.val().int().zeros_like());
        let going = |(x, _): (A1<B>, Array<B, 1, Int>)| x.val().lower(limit.val());
        while_loop(going, |(x, n)| (Array::new(x.val() * 2.0), Array::new(n.val() + 1)), (x, zero))
    }
    let starts = Array::<F, 2>::new(Tensor::from_floats([[1.0], [3.0], [40.0], [0.1]], &Default::default()));
    let found = vmap(doubled::<Traced>).call::<F, _>((starts.clone(), Shared(array([20.0]))));
    assert_eq!(floats(&found.0), [32.0, 24.0, 40.0, 25.6]);
    assert_eq!(found.1.val().into_data().iter::<i64>().collect::<Vec<_>>(), [5, 3, 0, 8]);
    let limits = Array::<F, 2>::new(Tensor::from_floats([[3.0], [1.0], [50.0], [0.1]], &Default::default()));
    let found = vmap(doubled::<Traced>).call::<F, _>((Shared(array([1.0])), limits));
    assert_eq!(floats(&found.0), [4.0, 1.0, 64.0, 1.0]);
    let jitted =
        jit(|(x, limit): (A2<Traced>, A1<Traced>)| vmap(doubled::<Traced>).call::<Traced, _>((x, Shared(limit))).0);
    assert_eq!(floats(&jitted.call::<F>((starts, array([20.0])))), [32.0, 24.0, 40.0, 25.6]);
}

#[test]
fn costs_of_what_is_inside() {
    let xs = normal([7, 2], 1);
    let cost = trace(|(c, xs)| scan(leaky::<Traced>, c, xs).0, &(array([0.5, 1.0]), xs)).cost();
    let of = |name: &str| {
        cost.by_operation.iter().find(|(known, _)| known == name).map(|(_, cost)| (cost.count, cost.flops))
    };
    assert_eq!((of("mul"), of("add")), (Some((7, 14)), Some((7, 14))), "{cost}");
    let cost = trace(branch::<Traced>, &(truth(true), array([1.0]), array([2.0]))).cost();
    assert_eq!(cost.total.flops, 2, "{cost}");
}
