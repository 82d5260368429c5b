//! Scans outside traces, in traces, jitted, differentiated and mapped, against loops and closed forms.

use crate::common;
use burn::tensor::{Int, Tensor};
use grove_backend::{Autodiff, Backend, Flex, GeluApproximation, ops};
use grove_compile::{
    Shared, Traced, cond, hessian, hvp, jacfwd, jacrev, jit, jvp, linearize, per_example_grads, scan, scan_with, trace,
    vmap,
};
use grove_transform::{Scan, grad, value_and_grad};
use grove_tree::{Array, Key, Tree};

type F = Flex;
type A1<B> = Array<B, 1>;
type A2<B> = Array<B, 2>;

fn array<const N: usize>(values: [f32; N]) -> A1<F> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn normal<const D: usize>(shape: [usize; D], seed: u64) -> Array<F, D> {
    Array::new(Key::new(seed).normal(shape, &Default::default()) * 0.5)
}

fn floats<B: Backend, const D: usize>(x: &Array<B, D>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

fn same<T: Tree<F>>(what: &str, found: &T, expected: &T) {
    common::same::<F, T>(what, found, expected, 1e-5, 1e-3);
}

/// Computes `0.5 c + x`, with the old carry as output.
fn leaky<B: Backend>(c: A1<B>, x: A1<B>) -> (A1<B>, A1<B>) {
    (Array::new(c.val() * 0.5 + x.val()), c)
}

/// Computes `tanh(h w + x u)`, with `h` times the step's index plus one as output.
#[allow(clippy::type_complexity)]
fn recurrent<B: Backend>(
    (w, u): (A2<B>, A2<B>),
    h: A2<B>,
    (x, i): (A2<B>, Array<B, 1, Int>),
) -> (A2<B>, (A2<B>, Array<B, 1, Int>)) {
    let h = (h.val().matmul(w.val()) + x.val().matmul(u.val())).tanh();
    let y = h.clone() * (i.val().float() + 1.0).unsqueeze();
    (Array::new(h), (Array::new(y), i))
}

type Recurrent<B> = ((A2<B>, A2<B>), A2<B>, (Array<B, 3>, Array<B, 2, Int>));

fn recurrent_args(steps: usize) -> Recurrent<F> {
    let ints = Tensor::<F, 1, Int>::arange(0..steps as i64, &Default::default()).reshape([steps, 1]);
    ((normal([4, 4], 1), normal([3, 4], 2)), normal([2, 4], 3), (normal([steps, 2, 3], 4), Array::new(ints)))
}

fn recurrent_loss<B: Backend>((params, h, xs): Recurrent<B>) -> Tensor<B, 1> {
    let (h, (ys, _)) = scan_with(Scan::new().reverse(), &params, recurrent, h, xs);
    h.val().sum() * 3.0 + (ys.val() * ys.val()).sum() + params.0.val().powf_scalar(2.0).sum()
}

#[test]
fn scans_are_the_same_traced_and_not() {
    for reverse in [false, true] {
        let options = if reverse { Scan::new().reverse() } else { Scan::new() };
        let f = move |(params, h, xs): Recurrent<Traced>| scan_with(options, &params, recurrent, h, xs);
        let (params, h, xs) = recurrent_args(5);
        let expected = options.run(|h, x| recurrent(params.clone(), h, x), h.clone(), xs.clone());
        let jitted = jit(f);
        same("jitted", &jitted.call::<F>((params, h, xs)), &expected);
        let graph = jitted.graph().unwrap();
        assert_eq!(graph.counts().keys().collect::<Vec<_>>(), ["scan"], "{graph}");
        let text = graph.to_string();
        assert!(text.contains("length=5\n      num_carry=1\n      num_consts=2"), "{text}");
    }
    let no_steps = |(h, xs): (A1<Traced>, A2<Traced>)| scan(leaky, h, xs);
    let (last, ys) = jit(no_steps).call::<F>((array([3.0]), Array::new(Tensor::empty([0, 1], &Default::default()))));
    assert_eq!((floats(&last), ys.shape()), (vec![3.0], [0, 1]));
}

#[test]
fn gradients_of_scans() {
    for steps in [1, 2, 5] {
        let graph = gradients!("scan", recurrent_loss, Recurrent<Traced>, recurrent_args(steps));
        assert_eq!((graph.counts()["scan"], graph.counts().get("tanh")), (2, None), "{graph}");
    }
    // Parameters in the carry.
    fn in_carry<B: Backend>((a, c, xs): (A1<B>, A1<B>, A2<B>)) -> Tensor<B, 1> {
        let step = |(a, c): (A1<B>, A1<B>), x: A1<B>| ((a.clone(), Array::new(a.val() * c.val() + x.val())), ());
        let ((a, c), ()) = scan(step, (a, c), xs);
        (c.val() * a.val()).sum()
    }
    let graph = gradients!(
        "carry",
        in_carry,
        (A1<Traced>, A1<Traced>, A2<Traced>),
        (array([0.5]), array([8.0]), Array::new(Tensor::from_floats([[1.0], [2.0]], &Default::default())))
    );
    assert!(graph.to_string().contains("num_carry=2"), "{graph}");
    let graph =
        trace(|args| Array::<_, 1>::new(in_carry::<Traced>(args)), &(array([0.5]), array([8.0]), normal([2, 1], 1)));
    assert!(graph.to_string().contains("num_carry=1\n      num_consts=1"), "{graph}");
    // A nested scan.
    fn nested<B: Backend>((a, xs): (A1<B>, Array<B, 3>)) -> Tensor<B, 1> {
        let inner = |a: A1<B>, c: A1<B>, x: A1<B>| {
            let c = Array::<B, 1>::new((a.val() * c.val()).sin() + x.val());
            (c.clone(), c)
        };
        let outer = |a: A1<B>, c: A1<B>, xs: A2<B>| {
            let (c, ys) = scan_with(Scan::new(), &a, inner, c, xs);
            (c, Array::<B, 1>::new(ys.val().sum_dim(0).reshape([-1])))
        };
        let (c, ys) = scan_with(Scan::new().reverse(), &a, outer, a.clone(), xs);
        c.val().sum() + (ys.val() * ys.val()).sum()
    }
    let graph =
        gradients!("nested", nested, (A1<Traced>, Array<Traced, 3>), (array([0.5, -0.7]), normal([3, 4, 2], 5)));
    assert_eq!(graph.counts()["scan"], 2, "{graph}");
}

/// Like [`recurrent_loss`], step by step.
fn stepwise_loss<B: Backend>((params, h, xs): Recurrent<B>) -> Tensor<B, 1> {
    let (h, (ys, _)) = Scan::new().reverse().run(|h, x| recurrent(params.clone(), h, x), h, xs);
    h.val().sum() * 3.0 + (ys.val() * ys.val()).sum() + params.0.val().powf_scalar(2.0).sum()
}

/// Arguments of which only the first depends on `w`.
fn with_weight<B: Backend>(w: A2<B>) -> Recurrent<B> {
    let ((_, u), h, (x, i)) = recurrent_args(3);
    let device = w.val().device();
    let constant = |x: A2<F>| A2::<B>::new(Tensor::from_data(x.val().into_data(), &device));
    let x = Tensor::from_data(x.val().into_data(), &device);
    let i = Tensor::from_data(i.val().into_data(), &device);
    ((w, constant(u)), constant(h), (Array::new(x), Array::new(i)))
}

#[test]
fn derivatives_of_every_order() {
    let args = recurrent_args(3);
    let of_params = (normal([4, 4], 7), normal([3, 4], 8));
    let tangent = (of_params, normal([2, 4], 9), (normal([3, 2, 3], 10), Array::absent([3, 1])));
    let stepwise = |args: Recurrent<Traced>| Array::<_, 1>::new(stepwise_loss(args));
    let rolled = |args: Recurrent<Traced>| Array::<_, 1>::new(recurrent_loss(args));
    same("jvp", &jvp(rolled, &args, &tangent), &jvp(stepwise, &args, &tangent));
    let (_, linear) = linearize(rolled, &args);
    same("linearize", &linear.call(&tangent), &jvp(stepwise, &args, &tangent).1);

    let (w, direction) = (args.0.0.clone(), normal([4, 4], 11));
    let forward = jacfwd(|w: A2<Traced>| rolled(with_weight(w)), &w).array::<3>();
    let loss = |w: A2<Autodiff<Traced>>| recurrent_loss(with_weight(w));
    let unrolled = |w: A2<Autodiff<Traced>>| stepwise_loss(with_weight(w));
    let backward = jacrev(|w| Array::<_, 1>::new(loss(w)), &w).array::<3>();
    same("jacobians", &backward, &forward);
    same("hvp", &hvp(loss, &w, &direction), &hvp(unrolled, &w, &direction));
    same("hessian", &hessian(loss, &w).array::<4>(), &hessian(unrolled, &w).array::<4>());
}

#[test]
fn second_gradients() {
    fn slope<B: Backend>(a: A1<B>) -> Tensor<B, 1> {
        grad(&a, |a: A1<Autodiff<B>>| {
            let times = |a: A1<Autodiff<B>>, x: A1<Autodiff<B>>, ()| (Array::new(a.val() * x.val()), ());
            let one = Array::new(a.val().ones_like());
            let fourth = scan_with(Scan::new().length(4), &a, times, one, ()).0;
            let more = |x: A1<Autodiff<B>>| Array::<_, 1>::new(x.val() * 2.0);
            cond(a.val().greater_elem(0.0), more, |x| x, fourth).val()
        })
        .val()
    }
    let a = array([3.0]);
    assert_eq!(grad(&a, slope).val().into_scalar(), 2.0 * 12.0 * 9.0);
    assert_eq!(jit(|a: A1<Traced>| grad(&a, slope)).call::<F>(a).val().into_scalar(), 2.0 * 12.0 * 9.0);
}

/// A carry with an integer and an absent leaf.
fn counted<B: Backend>((a, c, xs): (A1<B>, A1<B>, A2<B>)) -> Tensor<B, 1> {
    type Carry<B> = (A1<B>, Array<B, 1, Int>, A2<B>);
    let step = |a: A1<B>, (c, n, absent): Carry<B>, x: A1<B>| {
        let n = n.val() + 1;
        // No gradient flows through the detached carry.
        let next = c.val() * a.val() * n.clone().float() + x.val() * c.val().detach();
        let y = Array::<B, 1>::new(next.clone());
        ((Array::new(next), Array::new(n), absent), y)
    };
    let zero = Array::new(c.val().detach().int().zeros_like());
    let ((c, n, absent), ys) = scan_with(Scan::new(), &a, step, (c, zero, Array::absent([3, 4])), xs);
    assert!(!absent.is_present());
    (c.val() * n.val().float()).sum() + (ys.val() * ys.val()).sum()
}

#[test]
fn integers_in_the_carry() {
    let args = (array([0.5, -0.3]), array([1.0, 2.0]), normal([3, 2], 6));
    let graph = gradients!("counted", counted, (A1<Traced>, A1<Traced>, A2<Traced>), args.clone());
    assert_eq!(graph.counts()["scan"], 2, "{graph}");
    // Differentiates with respect to one argument only.
    let of_a = |a: A1<Autodiff<Traced>>| {
        let [c, x] = [Tensor::ones([2], &a.val().device()), Tensor::zeros([2], &a.val().device())];
        counted((a, Array::new(c), Array::new(x.unsqueeze::<2>().repeat_dim(0, 3))))
    };
    let (_, _, xs) = &args;
    let zeros = Array::<F, 2>::new(xs.val() * 0.0);
    let expected = grad(&(args.0.clone(), array([1.0, 1.0]), zeros), counted).0;
    same("one argument", &jit(move |a: A1<Traced>| grad(&a, of_a)).call::<F>(args.0), &expected);
}

#[test]
fn stopped_gradients_stay_stopped() {
    // The carry is passed on, but its gradient is not.
    fn passed_on<B: Backend>((a, xs): (A1<B>, A2<B>)) -> Tensor<B, 1> {
        let step = |a: A1<B>, x: A1<B>| {
            let y = Array::<B, 1>::new(a.val() * x.val());
            (Array::new(a.val().detach()), y)
        };
        let (last, ys) = scan(step, a, xs);
        ys.val().sum() + last.val().sum()
    }
    let args = (array([2.0]), Array::<F, 2>::new(Tensor::from_floats([[3.0], [5.0]], &Default::default())));
    gradients!("passed on", passed_on, (A1<Traced>, A2<Traced>), args.clone());
    assert_eq!(floats(&grad(&args, passed_on).0), [3.0]);
    fn branch<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        let stopped = |x: A1<B>| Array::<B, 1>::new(x.val() * x.val().detach());
        cond(x.val().greater_elem(0.0), stopped, |x| x, x).val()
    }
    gradients!("branch", branch, A1<Traced>, array([3.0]));
    assert_eq!(floats(&grad(&array([3.0]), branch)), [3.0]);
}

/// A scan whose steps choose a branch by the carry.
fn choosing<B: Backend>((a, c, xs): (A1<B>, A1<B>, A2<B>)) -> (A1<B>, A2<B>) {
    let step = |a: A1<B>, c: A1<B>, x: A1<B>| {
        let grow = |(a, c, x): (A1<B>, A1<B>, A1<B>)| Array::<B, 1>::new(a.val() * c.val() + x.val());
        let shrink = |(_, c, x): (A1<B>, A1<B>, A1<B>)| Array::<B, 1>::new(c.val() * 0.25 - x.val());
        let c = cond(c.val().sum().lower_elem(1.0), grow, shrink, (a, c, x));
        (c.clone(), c)
    };
    scan_with(Scan::new(), &a, step, c, xs)
}

#[test]
fn branches_in_scans_in_maps() {
    let (a, cs, xs) = (array([1.5, -0.5]), normal([4, 2], 3), normal([4, 6, 2], 4));
    let example = |i: usize| {
        let c = A1::<F>::new(cs.val().narrow(0, i, 1).reshape([-1]));
        (a.clone(), c, A2::<F>::new(xs.val().narrow(0, i, 1).reshape([6, 2])))
    };
    let call = |args: (A1<Traced>, A2<Traced>, Array<Traced, 3>)| {
        vmap(choosing::<Traced>).call::<Traced, _>((Shared(args.0), args.1, args.2))
    };
    let found = jit(call).call::<F>((a.clone(), cs.clone(), xs.clone()));
    let eager = vmap(choosing::<Traced>).call::<F, _>((Shared(a.clone()), cs.clone(), xs.clone()));
    same("mapped", &found, &eager);
    for i in 0..4 {
        let (last, ys) = choosing(example(i));
        let row = A1::<F>::new(found.0.val().narrow(0, i, 1).reshape([-1]));
        let rows = A2::<F>::new(found.1.val().narrow(0, i, 1).reshape([6, 2]));
        same("example", &(row, rows), &(last, ys));
    }
    // Gradients for each example.
    let grads = per_example_grads(&a, (cs.clone(), xs.clone()), |a, (c, xs)| {
        let (last, ys) = choosing((a, c, xs));
        last.val().sum() + ys.val().powf_scalar(2.0).sum()
    });
    for i in 0..4 {
        let (_, c, xs) = example(i);
        let expected = grad(&(a.clone(), c, xs), |args| {
            let (last, ys) = choosing(args);
            last.val().sum() + ys.val().powf_scalar(2.0).sum()
        });
        same("gradient of an example", &grads.get(i), &expected.0);
    }
}

#[test]
fn passes_go_inside() {
    fn f<B: Backend>((x, xs): (A1<B>, A2<B>)) -> (A1<B>, A2<B>) {
        let step = |c: A1<B>, x: A1<B>| {
            let _unused = c.val().exp();
            let gelu = |x: A1<B>| ops::gelu(x.val() + c.val(), GeluApproximation::Tanh);
            let y = Array::<B, 1>::new(gelu(x.clone()) * gelu(x.clone()).sin() + 1.0);
            (y.clone(), (y, x))
        };
        let (c, (y, _)) = scan(step, x, xs);
        (c, y)
    }
    let args = (array([0.5, 1.0]), normal([3, 2], 1));
    let graph = trace(f::<Traced>, &args);
    let text = graph.to_string();
    assert_eq!((text.matches("exp ").count(), text.matches("gelu").count()), (0, 1), "{text}");
    // The second array of results is unused.
    assert_eq!(graph.equations()[0].outputs.len(), 2, "{text}");
    let text = graph.clone().decomposed().to_string();
    assert!(!text.contains("gelu") && text.contains("tanh"), "{text}");
    let jitted = jit(f::<Traced>);
    same("jitted", &jitted.call::<F>(args.clone()), &f(args));
    assert!(jitted.graph().unwrap().to_string().contains("fused["), "{}", jitted.graph().unwrap());
}
