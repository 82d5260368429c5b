//! Functions with custom derivatives, outside traces, in traces, jitted, differentiated and mapped.

use crate::common;
use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{Autodiff, Backend, Candle, Flex};
use grove_compile::{
    CustomJvp, CustomVjp, Shared, Traced, cond, custom_jvp, custom_vjp, hvp, jacfwd, jacrev, jit, jvp, linearize,
    per_example_grads, remat, scan_with, switch, trace, vmap,
};
use grove_transform::{Scan, grad, value_and_grad};
use grove_tree::{Array, Key, Tree};
use std::panic::{AssertUnwindSafe, catch_unwind};

type F = Flex;
type A1<B> = Array<B, 1>;

fn array<const N: usize>(values: [f32; N]) -> A1<F> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn floats<B: Backend, const D: usize>(x: &Array<B, D>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

fn panic_of<T>(f: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

/// A weight, an integer and an absent leaf.
#[derive(Tree, Clone, Debug)]
struct Weights<B: Backend> {
    weight: A1<B>,
    power: Array<B, 1, Int>,
    missing: A1<B>,
    name: String,
}

fn weights(weight: A1<F>) -> Weights<F> {
    let power = Array::new(Tensor::from_ints([2], &Default::default()));
    Weights { weight, power, missing: Array::absent([7]), name: "w".into() }
}

/// Computes `weight * sin x` and `weight`, with gradients multiplied by ten.
#[derive(Clone, Debug)]
struct Tenfold {
    factor: f64,
}

impl CustomVjp for Tenfold {
    type Args<B: Backend> = (A1<B>, Weights<B>);
    type Output<B: Backend> = (A1<B>, (A1<B>, Array<B, 1, Int>));
    type Residuals<B: Backend> = (A1<B>, Weights<B>);

    fn forward<B: Backend>(&self, (x, w): (A1<B>, Weights<B>)) -> (Self::Output<B>, Self::Residuals<B>) {
        let y = x.val().sin() * w.weight.val();
        ((Array::new(y), (w.weight.clone(), w.power.clone())), (x, w))
    }

    fn backward<B: Backend>(&self, (x, w): (A1<B>, Weights<B>), (dy, (dw, power)): Self::Output<B>) -> Self::Args<B> {
        assert!(!power.is_present());
        let dx = dy.val() * w.weight.val() * x.val().cos() * self.factor;
        let dw = (dy.val() * x.val().sin() + dw.val()) * self.factor;
        let none = Array::absent(w.power.shape());
        (Array::new(dx), Weights { weight: Array::new(dw), power: none, ..w })
    }
}

fn tenfold<B: Backend>((x, w): (A1<B>, Weights<B>)) -> Tensor<B, 1> {
    let (y, (weight, _)) = custom_vjp(&Tenfold { factor: 10.0 }, (x, w));
    (y.val() * 2.0 + weight.val()).sum()
}

#[test]
fn a_vjp_rule_gives_the_gradients() {
    let args = (array([0.5, 1.0]), weights(array([3.0, 4.0])));
    let dx = [20.0 * 3.0 * 0.5f32.cos(), 20.0 * 4.0 * 1f32.cos()];
    let dw = [20.0 * 0.5f32.sin() + 10.0, 20.0 * 1f32.sin() + 10.0];
    let check = |(found_dx, w): (A1<F>, Weights<F>)| {
        common::same::<F, _>("dx", &found_dx, &array(dx), 1e-6, 1e-3);
        common::same::<F, _>("dw", &w.weight, &array(dw), 1e-6, 1e-3);
        assert!(!w.power.is_present() && !w.missing.is_present());
    };
    let (value, grads) = value_and_grad(&args, tenfold);
    assert!((value.into_scalar() - (2.0 * (3.0 * 0.5f32.sin() + 4.0 * 1f32.sin()) + 7.0)).abs() < 1e-5);
    check(grads);
    let jitted = jit(|args: (A1<Traced>, Weights<Traced>)| grad(&args, tenfold));
    check(jitted.call::<F>(args.clone()));
    // Differentiates with respect to one argument only.
    let dx_alone = grad(&args.0, |x| {
        let w = Tensor::from_inner(args.1.weight.val());
        let power = Tensor::from_inner(args.1.power.val());
        let w =
            Weights { weight: Array::new(w), power: Array::new(power), missing: Array::absent([7]), name: "w".into() };
        tenfold((x, w))
    });
    common::same::<F, _>("alone", &dx_alone, &array(dx), 1e-6, 1e-3);
    let graph = trace(|args| Array::<_, 1>::new(tenfold::<Traced>(args)), &args);
    assert_eq!(graph.counts()["custom_vjp_call"], 1, "{graph}");
    assert!(graph.to_string().contains("name=Tenfold\n      call_jaxpr={ lambda ;"), "{graph}");
    let found = graph.eval::<F, _>(&args).remove(0).into_float::<1>().unwrap().into_scalar();
    assert_eq!(found, tenfold(args).into_scalar());
}

#[test]
fn a_vjp_rule_on_candle() {
    let x = Array::<Candle, 1>::new(Tensor::from_floats([1.0], &Default::default()));
    let slope = jit(|x: A1<Traced>| grad(&x, |x| custom_vjp(&Straight, x).val()));
    assert_eq!(floats(&slope.call::<Candle>(x.clone())), [1.0]);
    assert_eq!(floats(&grad(&x, |x| custom_vjp(&Straight, x).val())), [1.0]);
}

/// Rounds, with a straight-through gradient.
#[derive(Clone, Debug)]
struct Straight;

impl CustomVjp for Straight {
    type Args<B: Backend> = A1<B>;
    type Output<B: Backend> = A1<B>;
    type Residuals<B: Backend> = ();

    fn forward<B: Backend>(&self, x: A1<B>) -> (A1<B>, ()) {
        (Array::new(x.val().round()), ())
    }

    fn backward<B: Backend>(&self, (): (), grad: A1<B>) -> A1<B> {
        grad
    }
}

/// Like [`Straight`], with a forward-mode rule.
#[derive(Clone, Debug)]
struct StraightForward;

impl CustomJvp for StraightForward {
    type Args<B: Backend> = A1<B>;
    type Output<B: Backend> = A1<B>;

    fn call<B: Backend>(&self, x: A1<B>) -> A1<B> {
        Array::new(x.val().round())
    }

    fn jvp<B: Backend>(&self, x: A1<B>, tangent: A1<B>) -> (A1<B>, A1<B>) {
        (custom_jvp(self, x), tangent)
    }
}

/// Computes `x^3 w` and `x`, with derivatives multiplied by ten.
#[derive(Clone, Debug)]
struct Cube;

impl CustomJvp for Cube {
    type Args<B: Backend> = (A1<B>, Weights<B>);
    type Output<B: Backend> = (A1<B>, A1<B>);

    fn call<B: Backend>(&self, (x, w): (A1<B>, Weights<B>)) -> (A1<B>, A1<B>) {
        (Array::new(x.val() * x.val() * x.val() * w.weight.val()), x)
    }

    fn jvp<B: Backend>(&self, (x, w): Self::Args<B>, (dx, dw): Self::Args<B>) -> (Self::Output<B>, Self::Output<B>) {
        assert!(!dw.power.is_present() && !dw.missing.is_present());
        let slope = x.val() * x.val() * w.weight.val() * 30.0;
        let tangent = slope * dx.val() + x.val() * x.val() * x.val() * dw.weight.val() * 10.0;
        (custom_jvp(self, (x, w)), (Array::new(tangent), Array::new(dx.val() * 10.0)))
    }
}

fn cube<B: Backend>((x, w): (A1<B>, Weights<B>)) -> Tensor<B, 1> {
    let (y, x) = custom_jvp(&Cube, (x, w));
    (y.val() + x.val() * 2.0).sum()
}

#[test]
fn a_jvp_rule_gives_tangents_and_gradients() {
    let args = (array([2.0, -1.0]), weights(array([3.0, 4.0])));
    let (dx, dw) = ([380.0, 140.0], [80.0, -10.0]);
    assert_eq!(cube(args.clone()).into_scalar(), 24.0 - 4.0 + 2.0);
    let tangents = (array([1.0, 0.5]), Weights { power: Array::absent([1]), ..weights(array([2.0, 1.0])) });
    let traced = |args| Array::<_, 1>::new(cube::<Traced>(args));
    let (value, tangent) = jvp(traced, &args, &tangents);
    assert_eq!((floats(&value), floats(&tangent)), (vec![22.0], vec![380.0 + 70.0 + 160.0 - 10.0]));
    let (_, linear) = linearize(traced, &args);
    assert_eq!(floats(&linear.call(&tangents)), [600.0]);
    for grads in
        [grad(&args, cube), jit(|args: (A1<Traced>, Weights<Traced>)| grad(&args, cube)).call::<F>(args.clone())]
    {
        assert_eq!((floats(&grads.0), floats(&grads.1.weight)), (dx.to_vec(), dw.to_vec()));
    }
    let rows = jacfwd(traced, &args);
    assert_eq!(rows.get("", "0").unwrap().clone().into_data().unwrap().to_vec::<f32>().unwrap(), dx);
    let graph = trace(traced, &args);
    assert_eq!(graph.counts()["custom_jvp_call"], 1, "{graph}");
    assert_eq!(graph.eval::<F, _>(&args).remove(0).into_float::<1>().unwrap().into_scalar(), 22.0);
}

#[test]
fn second_derivatives_of_rules() {
    // d/dx 30 x^2 w = 60 x w.
    fn slope<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        grad(&x, |x: A1<Autodiff<B>>| {
            let weight = Array::new(x.val().ones_like());
            let power = Array::new(x.val().detach().int());
            custom_jvp(&Cube, (x, Weights { weight, power, missing: Array::absent([7]), name: String::new() })).0.val()
        })
        .val()
    }
    let x = array([2.0]);
    assert_eq!(floats(&grad(&x, slope)), [120.0]);
    assert_eq!(floats(&jit(|x: A1<Traced>| grad(&x, slope)).call::<F>(x.clone())), [120.0]);
    let (_, second) = jvp(|x| A1::<Traced>::new(slope(x)), &x, &array([1.0]));
    assert_eq!(floats(&second), [120.0]);

    // d/dx 10 w cos x = -10 w sin x.
    fn tenfold_slope<B: Backend>(x: A1<B>) -> Tensor<B, 1> {
        grad(&x, |x: A1<Autodiff<B>>| {
            let weight = Array::new(x.val().ones_like());
            let power = Array::new(x.val().detach().int());
            let weights = Weights { weight, power, missing: Array::absent([7]), name: String::new() };
            custom_vjp(&Tenfold { factor: 10.0 }, (x, weights)).0.val()
        })
        .val()
    }
    let expected = -10.0 * 2f32.sin();
    let close = |found: Vec<f32>| assert!((found[0] - expected).abs() < 1e-5, "{found:?}");
    close(floats(&grad(&x, tenfold_slope)));
    close(floats(&jit(|x: A1<Traced>| grad(&x, tenfold_slope)).call::<F>(x.clone())));
    close(floats(&jvp(|x| A1::<Traced>::new(tenfold_slope(x)), &x, &array([1.0])).1));
    let product = hvp(
        |x| {
            let weight = Array::new(x.val().ones_like());
            let power = Array::new(x.val().detach().int());
            let weights = Weights { weight, power, missing: Array::absent([7]), name: String::new() };
            custom_vjp(&Tenfold { factor: 10.0 }, (x, weights)).0.val()
        },
        &x,
        &array([1.0]),
    );
    close(floats(&product));
}

/// Sine, with a gradient multiplied by ten.
#[derive(Clone, Debug)]
struct Sine;

impl CustomVjp for Sine {
    type Args<B: Backend> = A1<B>;
    type Output<B: Backend> = A1<B>;
    type Residuals<B: Backend> = A1<B>;

    fn forward<B: Backend>(&self, x: A1<B>) -> (A1<B>, A1<B>) {
        (Array::new(x.val().sin()), x)
    }

    fn backward<B: Backend>(&self, x: A1<B>, grad: A1<B>) -> A1<B> {
        Array::new(grad.val() * x.val().cos() * 10.0)
    }
}

/// Applies [`Sine`] inside of control flow. The derivative of the sine of the result needs the value, too.
fn sine_of_nested<B: Backend>(case: &str, x: A1<B>) -> Tensor<B, 1> {
    let sine = |x: A1<B>| custom_vjp(&Sine, x);
    let itself = |x: A1<B>| x;
    let larger = |x: A1<B>| Array::new(x.val() * 1.5);
    let is_above = |x: &A1<B>, bound: f64| -> Tensor<B, 1, Bool> { x.val().sum().greater_elem(bound) };
    let thrice = |f: &dyn Fn(A1<B>) -> A1<B>, x: A1<B>| {
        scan_with(Scan::new().length(3), &(), |(), x, (): ()| (f(x), ()), x, ()).0
    };
    let y = match case {
        "cond" => cond(is_above(&x, 0.0), sine, itself, x),
        "switch" => {
            let sines = |x: A1<B>| thrice(&|x: A1<B>| larger(Array::new(x.val().sin())), sine(x));
            let second = x.val().sum().greater_elem(0.0).int();
            switch(second, &[&itself, &sines, &itself], x)
        }
        "scan" => thrice(&|x| larger(sine(x)), x),
        "scan of cond" => thrice(&|x| cond(is_above(&x, 0.0), |x| larger(sine(x)), itself, x), x),
        "cond of scan" => cond(is_above(&x, 0.0), |x| thrice(&|x| larger(sine(x)), x), itself, x),
        "checkpoint" => remat(|x| sine(sine(x)), x),
        _ => {
            let rows = Array::<B, 2>::new(Tensor::stack(vec![x.val() * 0.5, x.val()], 0));
            let f = |x: A1<Traced>| {
                let above = x.val().sum().greater_elem(1.0);
                cond(above, |x| custom_vjp(&Sine, x), |x: A1<Traced>| x, x)
            };
            let y: Array<B, 2> = vmap(f).call::<B, _>(rows);
            Array::new(y.val().sum_dim(0).squeeze_dim(0))
        }
    };
    y.val().sin().sum()
}

/// The derivative of [`sine_of_nested`] in the direction `[1.0, -0.5]`.
fn slope_in_direction<B: Backend>(case: &str, x: A1<B>) -> Tensor<B, 1> {
    let slope = grad(&x, |x: A1<Autodiff<B>>| sine_of_nested(case, x));
    (slope.val() * Tensor::from_floats([1.0, -0.5], &Default::default())).sum()
}

/// Gradients and Hessian-vector products of JAX.
#[test]
fn second_derivatives_of_vjp_rules_inside_of_control_flow() {
    let in_scan = ([383.77572, 1.509275], [-2945.2196, 5.614728]);
    let cases = [
        ("cond", ([7.7864395, 2.1603703], [-7.806224, 3.3054753])),
        ("switch", ([3.937255, 0.0409523], [-28.081967, 0.1104497])),
        ("scan", in_scan),
        ("scan of cond", in_scan),
        ("cond of scan", in_scan),
        ("checkpoint", ([69.72665, 15.007413], [-96.88873, 24.640726])),
        ("vmap", ([6.9156602, 0.1597785], [-12.090325, 1.9572354])),
    ];
    let (x, t) = (array([0.5, 1.2]), array([1.0, -0.5]));
    for (case, (gradient, product)) in cases {
        let close = |mode: &str, found: A1<F>, expected: [f32; 2]| {
            common::same::<F, _>(&format!("{mode} of {case}"), &found, &array(expected), 1e-4, 1e-4);
        };
        close("grad", grad(&x, |x| sine_of_nested(case, x)), gradient);
        let slope = move |x: A1<Traced>| grad(&x, |x| sine_of_nested(case, x));
        close("jit(grad)", jit(slope).call::<F>(x.clone()), gradient);
        close("hvp", hvp(|x| sine_of_nested(case, x), &x, &t), product);
        let traced = move |(x, t): (A1<Traced>, A1<Traced>)| jvp(slope, &x, &t).1;
        close("jit(hvp)", jit(traced).call::<F>((x.clone(), t.clone())), product);
        close("linearize", linearize(slope, &x).1.call(&t), product);
        close("grad(grad)", grad(&x, |x| slope_in_direction(case, x)), product);
        close(
            "jit(grad(grad))",
            jit(move |x: A1<Traced>| grad(&x, |x| slope_in_direction(case, x))).call::<F>(x.clone()),
            product,
        );
    }
}

#[test]
fn forward_mode_of_a_vjp_rule_is_refused() {
    let message = panic_of(|| jvp(|x| custom_vjp::<Traced, _>(&Straight, x), &array([1.2]), &array([1.0])));
    assert!(message.contains("`Straight` has a rule for reverse mode only"), "{message}");
}

#[test]
fn rules_hold_inside_of_control_flow() {
    fn rounded<B: Backend>((a, xs): (A1<B>, Array<B, 2>)) -> Tensor<B, 1> {
        let step = |a: A1<B>, c: A1<B>, x: A1<B>| {
            let backward = |(c, x): (A1<B>, A1<B>)| custom_vjp(&Straight, Array::new(c.val() * x.val()));
            let forward = |(c, x): (A1<B>, A1<B>)| custom_jvp(&StraightForward, Array::new(c.val() * x.val()));
            let next = cond(x.val().sum().greater_elem(0.0), backward, forward, (c, x));
            (Array::new(next.val() + a.val()), ())
        };
        scan_with(Scan::new(), &a, step, a.clone(), xs).0.val().sum()
    }
    let args = (array([1.5]), Array::<F, 2>::new(Tensor::from_floats([[1.3], [-0.8], [2.1]], &Default::default())));
    let eager = grad(&args, rounded);
    let jitted = jit(|args: (A1<Traced>, Array<Traced, 2>)| grad(&args, rounded));
    let found = jitted.call::<F>(args.clone());
    common::same::<F, _>("gradient", &found, &eager, 1e-6, 1e-3);
    // The expected slope ignores the rounding: a chain of products.
    let expected = ((1.3 + 1.0) * -0.8 + 1.0) * 2.1 + 1.0;
    assert!((floats(&found.0)[0] - expected).abs() < 1e-5, "{found:?}");
    assert_eq!(jitted.graph().unwrap().counts()["scan"], 2);
}

#[test]
fn mapped_rules() {
    let xs = Array::<F, 2>::new(Key::new(1).uniform([4, 2], -2.0, 2.0, &Default::default()));
    let w = weights(array([3.0, 4.0]));
    let found =
        vmap(|(x, w)| Array::<_, 1>::new(tenfold::<Traced>((x, w)))).call::<F, _>((xs.clone(), Shared(w.clone())));
    let found_cube =
        vmap(|(x, w)| Array::<_, 1>::new(cube::<Traced>((x, w)))).call::<F, _>((xs.clone(), Shared(w.clone())));
    let example = |i: usize| A1::<F>::new(xs.val().narrow(0, i, 1).reshape([-1]));
    for i in 0..4 {
        assert!((floats(&found)[i] - tenfold((example(i), w.clone())).into_scalar()).abs() < 1e-5);
        assert!((floats(&found_cube)[i] - cube((example(i), w.clone())).into_scalar()).abs() < 1e-4);
    }
    // Rules of mapped functions under an outer transformation, with a shared argument.
    let mapped = |(xs, w): (Array<Traced, 2>, Weights<Traced>)| {
        vmap(|(x, w)| Array::<_, 1>::new(cube::<Traced>((x, w)))).call::<Traced, _>((xs, Shared(w)))
    };
    let slopes = jacfwd(mapped, &(xs.clone(), w.clone()));
    let block = slopes.get("", "1.weight").unwrap().clone().into_data().unwrap().to_vec::<f32>().unwrap();
    for i in 0..4 {
        let expected = grad(&(example(i), w.clone()), cube);
        let expected = floats(&expected.1.weight);
        assert!((block[2 * i] - expected[0]).abs() < 1e-3 && (block[2 * i + 1] - expected[1]).abs() < 1e-3);
    }
    let grads = per_example_grads(&w, xs.clone(), |w, x| tenfold((x, w)));
    for i in 0..4 {
        let expected = grad(&(example(i), w.clone()), tenfold).1;
        common::same::<F, _>("per example", &grads.get(i).weight, &expected.weight, 1e-5, 1e-3);
    }
    // The gradient of a mapped function with one shared argument.
    let summed = |(xs, w): (Array<Autodiff<Traced>, 2>, Weights<Autodiff<Traced>>)| {
        let call = |(x, w): (A1<Traced>, Weights<Traced>)| Array::<_, 1>::new(tenfold((x, w)));
        vmap(call).call::<Autodiff<Traced>, _>((xs, Shared(w))).val().sum()
    };
    let found =
        jit(move |args: (Array<Traced, 2>, Weights<Traced>)| grad(&args, summed)).call::<F>((xs.clone(), w.clone()));
    let eager = grad(&(xs.clone(), w.clone()), |(xs, w): (Array<Autodiff<F>, 2>, Weights<Autodiff<F>>)| {
        let call = |(x, w): (A1<Traced>, Weights<Traced>)| Array::<_, 1>::new(tenfold((x, w)));
        vmap(call).call::<Autodiff<F>, _>((xs, Shared(w))).val().sum()
    });
    let expected = (0..4).map(|i| floats(&grad(&(example(i), w.clone()), tenfold).1.weight)[0]).sum::<f32>();
    assert!((floats(&found.1.weight)[0] - expected).abs() < 1e-3, "{found:?} {expected}");
    assert!((floats(&eager.1.weight)[0] - expected).abs() < 1e-3, "{eager:?} {expected}");
    common::same::<F, _>("examples", &found.0, &eager.0, 1e-5, 1e-3);
    let rows = jacrev(|x| custom_vjp(&Straight, x), &array([0.4, 1.7])).array::<2>();
    assert_eq!(floats(&rows), [1.0, 0.0, 0.0, 1.0]);
}

/// Returns a gradient with a wrong shape.
#[derive(Clone, Debug)]
struct Wrong;

impl CustomVjp for Wrong {
    type Args<B: Backend> = A1<B>;
    type Output<B: Backend> = A1<B>;
    type Residuals<B: Backend> = ();

    fn forward<B: Backend>(&self, x: A1<B>) -> (A1<B>, ()) {
        (Array::new(x.val().sum()), ())
    }

    fn backward<B: Backend>(&self, (): (), grad: A1<B>) -> A1<B> {
        grad
    }
}

#[test]
fn gradients_of_a_wrong_shape_are_refused() {
    let message = panic_of(|| grad(&array([1.0, 2.0]), |x| custom_vjp(&Wrong, x).val()));
    assert!(message.contains("gradient that `backward` of `Wrong` returns has shape [1]"), "{message}");
}
