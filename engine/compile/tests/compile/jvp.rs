//! Forward-mode and second-order derivatives against JAX.

use crate::common;
use burn::tensor::{
    Int, Tensor, TensorData,
    activation::{log_softmax, softmax},
    module::{conv2d, max_pool2d},
    ops::ConvOptions,
};
use grove_backend::{Autodiff, Backend, Candle, Flex, GeluApproximation, ops};
use grove_compile::{Shared, Traced, hessian, hvp, jacfwd, jacrev, jit, jvp, linearize, per_example_grads, vmap};
use grove_models::{CausalLm, Gpt2, Pretrained, ResNet};
use grove_optim::{PerExampleClip, per_example_clip};
use grove_transform::{Stacked, grad, value_and_grad};
use grove_tree::{AnyArray, Array, Key, Tree, leaves, map};
use serde_json::Value;
use std::{
    any::TypeId,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

type B = Flex;

fn fixture() -> Value {
    let text = std::fs::read_to_string("tests/fixtures/transformations.json").unwrap();
    serde_json::from_str(&text).unwrap()
}

fn data(value: &Value) -> TensorData {
    let list = |name: &str| value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value}")).iter();
    let shape: Vec<usize> = list("shape").map(|x| x.as_u64().unwrap() as usize).collect();
    TensorData::new(list("values").map(|x| x.as_f64().unwrap() as f32).collect(), shape)
}

fn array<B: Backend, const D: usize>(value: &Value) -> Array<B, D> {
    Array::new(Tensor::from_data(data(value), &Default::default()))
}

/// Fails unless values agree with JAX, relative to the largest value.
fn close<B: Backend>(what: &str, found: AnyArray<B>, expected: &Value) {
    let (found, expected) = (found.into_data().unwrap_or_else(|| panic!("{what} is absent")), data(expected));
    assert_eq!(
        found.shape.num_elements(),
        expected.shape.num_elements(),
        "{what}: {:?} {:?}",
        found.shape,
        expected.shape
    );
    let list = |data: TensorData| data.iter::<f64>().collect::<Vec<_>>();
    let (found, expected) = (list(found), list(expected));
    let largest = expected.iter().fold(1e-3_f64, |max, x| max.max(x.abs()));
    let apart = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(apart <= 2e-5 * largest, "{what}: apart by {apart} of {largest}\n{found:?}\n{expected:?}");
    assert!(found.iter().all(|x| x.is_finite()), "{what}: {found:?}");
}

/// Fails unless two trees agree, relative to the largest value of each leaf. Differences have few significant digits.
fn same<S: Tree<B>>(what: &str, found: &S, expected: &S) {
    common::same::<B, S>(what, found, expected, 2e-3, 1e-3);
}

fn unary<B: Backend, const D: usize>(name: &str, x: Tensor<B, D>) -> Tensor<B, D> {
    match name {
        "abs" => x.abs(),
        "exp" => x.exp(),
        "log" => x.log(),
        "log1p" => x.log1p(),
        "sqrt" => x.sqrt(),
        "recip" => x.recip(),
        "erf" => x.erf(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "asinh" => x.asinh(),
        "atanh" => x.atanh(),
        "floor" => x.floor(),
        "gelu" => ops::gelu(x, GeluApproximation::None),
        "gelu_tanh" => ops::gelu(x, GeluApproximation::Tanh),
        "selu" => ops::selu(x),
        "power" => x.powf_scalar(2.5),
        "cube" => x.powi_scalar(3),
        other => panic!("no function {other}"),
    }
}

fn layer_norm<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let size = x.dims()[1];
    let weight = Tensor::ones([size], &x.device());
    ops::row_norm(x, weight.clone(), Some(weight * 0.0), ops::RowNorm { centred: true, eps: 1e-5 }).0
}

fn of_array<B: Backend>(name: &str, x: Tensor<B, 2>) -> Tensor<B, 2> {
    match name {
        "prod" => x.prod_dim(1),
        "sum" => x.sum_dim(0),
        "mean" => x.mean_dim(1),
        "max" => x.max_dim(1),
        "cumsum" => x.cumsum(1),
        "cumprod" => x.cumprod(1),
        "cummax" => x.cummax(1),
        "softmax" => softmax(x, 1),
        "log_softmax" => log_softmax(x, 1),
        "layer_norm" => layer_norm(x),
        "clip" => x.clamp(-0.5, 0.5),
        "sort_2" => x.topk(2, 1),
        other => panic!("no function {other}"),
    }
}

fn of_pair<B: Backend>(name: &str, a: Tensor<B, 2>, b: Tensor<B, 2>) -> Tensor<B, 2> {
    match name {
        "pow" => a.abs().powf(b),
        "div" => a / b,
        "atan2" => a.atan2(b),
        "where" => (b.clone()).mask_where(a.clone().greater(b.clone()), a * b),
        "matmul" => a.matmul(b.transpose()),
        other => panic!("no function {other}"),
    }
}

fn each<'a>(fixture: &'a Value, name: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let table = fixture[name].as_object().unwrap();
    assert!(table.len() > 3);
    table.iter().map(|(name, value)| (&name[..], value))
}

/// Returns false for functions that Burn 0.21 does not implement on a backend. On candle, inverse trigonometric functions call
/// each other without end, and a product is the exponential of a sum of logarithms, which is NaN for negative numbers.
fn works<B: Backend>(name: &str) -> bool {
    TypeId::of::<B>() != TypeId::of::<Candle>() || !["asin", "acos", "atan", "atan2", "prod"].contains(&name)
}

fn functions<B: Backend>() {
    let fixture = fixture();
    let [x, t] = [0, 1].map(|i| array::<B, 1>(&fixture["unary_inputs"][i]));
    for (name, expected) in each(&fixture, "unary").filter(|(name, _)| works::<B>(name)) {
        let (y, tangent) = jvp(|x| Array::<_, 1>::new(unary(name, x.val())), &x, &t);
        close(name, y.into_any(), &expected[0]);
        close(name, tangent.into_any(), &expected[1]);
    }
    let ones = Array::new(x.val().ones_like());
    for (name, expected) in each(&fixture, "unary_second").filter(|(name, _)| works::<B>(name)) {
        let second = hvp(|x| unary(name, x.val()).sum(), &x, &ones);
        close(&format!("second derivative of {name}"), second.into_any(), expected);
    }
    let [x, t] = [0, 1].map(|i| array::<B, 2>(&fixture["arrays_inputs"][i]));
    for (name, expected) in each(&fixture, "arrays").filter(|(name, _)| works::<B>(name)) {
        let (y, tangent) = jvp(|x| Array::<_, 2>::new(of_array(name, x.val())), &x, &t);
        close(name, y.into_any(), &expected[0]);
        close(name, tangent.into_any(), &expected[1]);
    }
    let [a, b, ta, tb] = [0, 1, 2, 3].map(|i| array::<B, 2>(&fixture["pairs_inputs"][i]));
    for (name, expected) in each(&fixture, "pairs").filter(|(name, _)| works::<B>(name)) {
        let f = |(a, b): (Array<Traced, 2>, Array<Traced, 2>)| Array::<_, 2>::new(of_pair(name, a.val(), b.val()));
        let (y, tangent) = jvp(f, &(a.clone(), b.clone()), &(ta.clone(), tb.clone()));
        close(name, y.into_any(), &expected[0]);
        close(name, tangent.into_any(), &expected[1]);
    }
}

type Params<B> = (Array<B, 2>, Array<B, 1>, Array<B, 2>);

fn mlp<B: Backend>((w1, b1, w2): &Params<B>, x: Tensor<B, 2>) -> Tensor<B, 2> {
    ops::linear(ops::linear(x, w1.val(), Some(b1.val())).tanh(), w2.val(), None)
}

fn perceptron<B: Backend>() {
    let fixture = &fixture()["mlp"];
    let params =
        |name: &str| -> Params<B> { (array(&fixture[name][0]), array(&fixture[name][1]), array(&fixture[name][2])) };
    let (p, directions, xs) = (params("params"), params("directions"), array::<B, 2>(&fixture["xs"]));
    let f =
        |(p, x): (Params<Traced>, Array<Traced, 1>)| Array::<_, 1>::new(mlp(&p, x.val().unsqueeze()).squeeze_dim(0));
    close("vmap", vmap(f).call((Shared(p.clone()), xs.clone())).into_any(), &fixture["vmap"]);

    let first = Array::<B, 1>::new(xs.val().slice(0..1).squeeze_dim(0));
    let jacobian = jacfwd(f, &(p.clone(), first.clone()));
    close("jacobian", jacobian.get("", "1").unwrap().clone(), &fixture["jacobian"]);
    close("jacobian of w2", jacobian.get("", "0.2").unwrap().clone(), &fixture["jacobian_of_w2"]);
    let jacobian = jacrev(
        |(p, x): (Params<Autodiff<Traced>>, Array<Autodiff<Traced>, 1>)| {
            Array::<_, 1>::new(mlp(&p, x.val().unsqueeze()).squeeze_dim(0))
        },
        &(p.clone(), first),
    );
    close("jacrev", jacobian.get("", "1").unwrap().clone(), &fixture["jacobian"]);
    close("jacrev of w2", jacobian.get("", "0.2").unwrap().clone(), &fixture["jacobian_of_w2"]);
    assert_eq!(jacobian.blocks().count(), 4);

    let loss = |(p, xs): (Params<Autodiff<Traced>>, Array<Autodiff<Traced>, 2>)| mlp(&p, xs.val()).powi_scalar(2).sum();
    let zero = Array::<B, 2>::absent(xs.shape());
    let (found, _) = hvp(loss, &(p.clone(), xs.clone()), &(directions, zero));
    for (i, leaf) in [found.0.into_any(), found.1.into_any(), found.2.into_any()].into_iter().enumerate() {
        close("hvp", leaf, &fixture["hvp"][i]);
    }
    let second = hessian(loss, &(p.clone(), xs.clone()));
    close("hessian", second.get("0.1", "0.2").unwrap().clone(), &fixture["hessian_b1_w2"]);
    let grads = per_example_grads(&p, xs, |p, x| mlp(&p, x.val().unsqueeze()).powi_scalar(2).sum());
    for (i, (_, leaf)) in leaves(&grads).into_iter().enumerate() {
        close("per example", leaf, &fixture["per_example"][i]);
    }
}

fn hessians<B: Backend>() {
    let fixture = fixture();
    let x = array::<B, 1>(&fixture["hessians_input"]);
    let expected = &fixture["hessians"];
    let close = |name: &str, found: Array<B, 2>| close(name, found.into_any(), &expected[name]);
    let rosenbrock = |x: Array<Autodiff<Traced>, 1>| {
        let (a, b) = (x.val().slice(0..5), x.val().slice(1..6));
        ((b - a.clone().square()).square() * 100.0 + (-a + 1.0).square()).sum()
    };
    close("rosenbrock", hessian(rosenbrock, &x).array());
    let log_sum_exp = |x: Array<Autodiff<Traced>, 1>| x.val().exp().sum().log();
    close("logsumexp", hessian(log_sum_exp, &x).array());
    close("layer_norm", hessian(|x| layer_norm(x.val().unsqueeze()).powi_scalar(3).sum(), &x).array());
}

fn images_and_attention<B: Backend>() {
    let fixture = fixture();
    let conv = &fixture["conv"];
    let [image, weight, direction] = [0, 1, 2].map(|i| array::<B, 4>(&conv["inputs"][i]));
    type Pair = (Array<Autodiff<Traced>, 4>, Array<Autodiff<Traced>, 4>);
    let convolved = |(x, w): Pair| conv2d(x.val(), w.val(), None, ConvOptions::<2>::new([2, 2], [1, 1], [1, 1], 1));
    let absent = Array::absent(image.shape());
    let args = (image, weight);
    let (_, found) = hvp(|pair| convolved(pair).tanh().square().sum(), &args, &(absent.clone(), direction.clone()));
    close("conv", found.into_any(), &conv["hvp"]);
    let options = ops::Pool2dOptions { kernel: [2, 2], stride: [2, 2], padding: [0, 0] };
    let pooled = |pair: Pair| ops::max_pool2d(convolved(pair) * 3.0, options);
    let (_, found) = hvp(|pair| pooled(pair).tanh().square().sum(), &args, &(absent.clone(), direction.clone()));
    close("pool", found.into_any(), &conv["hvp_of_pool"]);
    // On candle, Burn does not implement the derivative of its own pooling.
    if TypeId::of::<B>() == TypeId::of::<Flex>() {
        let pooled = |pair: Pair| max_pool2d(convolved(pair) * 3.0, [2, 2], [2, 2], [0, 0], [1, 1], false);
        let (_, found) = hvp(|pair| pooled(pair).tanh().square().sum(), &args, &(absent, direction));
        close("Burn's pool", found.into_any(), &conv["hvp_of_pool"]);
    }

    let attention = &fixture["attention"];
    let [q, k, v, direction] = [0, 1, 2, 3].map(|i| array::<B, 2>(&attention["inputs"][i]));
    fn attend<B: Backend>(q: Tensor<B, 2>, k: Tensor<B, 2>, v: Tensor<B, 2>) -> Tensor<B, 2> {
        let [q, k, v] = [q, k, v].map(|x| x.unsqueeze::<4>());
        let visible = ops::KeyRanges { causal: true, ..Default::default() };
        let options = ops::AttentionOptions::new(1.0 / 8.0_f64.sqrt(), visible);
        ops::attention(q, k, v, options).reshape([4, 8])
    }
    let found = hvp(
        |[q, k, v]: [Array<Autodiff<Traced>, 2>; 3]| attend(q.val(), k.val(), v.val()).powi_scalar(3).sum(),
        &[q.clone(), k.clone(), v.clone()],
        &[direction.clone(), Array::absent([4, 8]), Array::absent([4, 8])],
    );
    let [found, ..] = found;
    close("attention", found.into_any(), &attention["hvp"]);
    let f = |(q, k, v): (Array<Traced, 2>, Array<Traced, 2>, Array<Traced, 2>)| {
        Array::<_, 2>::new(attend(q.val(), k.val(), v.val()))
    };
    let absent = || Array::absent([4, 8]);
    let (_, found) = jvp(f, &(q, k, v), &(absent(), direction, absent()));
    close("attention's derivative", found.into_any(), &attention["jvp"]);
}

mod on_flex {
    #[test]
    fn functions() {
        super::functions::<super::Flex>();
    }

    #[test]
    fn perceptron() {
        super::perceptron::<super::Flex>();
    }

    #[test]
    fn hessians() {
        super::hessians::<super::Flex>();
    }

    #[test]
    fn images_and_attention() {
        super::images_and_attention::<super::Flex>();
    }
}

mod on_candle {
    #[test]
    fn functions() {
        super::functions::<super::Candle>();
    }

    #[test]
    fn perceptron() {
        super::perceptron::<super::Candle>();
    }

    #[test]
    fn hessians() {
        super::hessians::<super::Candle>();
    }

    #[test]
    fn images_and_attention() {
        super::images_and_attention::<super::Candle>();
    }
}

fn load<M: Pretrained<B>>(path: &str) -> M {
    M::from_path(Path::new("../../models/tests/fixtures").join(path), &Default::default(), None).unwrap().0
}

/// Hessian-vector products of a whole model, against differences of gradients.
#[test]
fn products_with_hessians_of_models() {
    let model: Gpt2<B> = load("gpt2/tiny_a");
    let ids = || Tensor::<Autodiff<B>, 2, Int>::from_ints([[3, 9, 4, 1], [7, 2, 2, 5]], &Default::default());
    let direction = map(model.clone(), |leaf| leaf.mul_scalar(0.5));
    let found = hvp(
        |model| {
            let ids =
                || Tensor::<Autodiff<Traced>, 2, Int>::from_ints([[3, 9, 4, 1], [7, 2, 2, 5]], &Default::default());
            model.next_token_loss(ids(), ids(), None)
        },
        &model,
        &direction,
    );
    let step = 1e-2;
    let at = |step: f64| {
        let moved = map(model.clone(), |leaf| leaf.mul_scalar(1.0 + 0.5 * step));
        grad(&moved, |model| model.next_token_loss(ids(), ids(), None))
    };
    let (above, below) = (at(step), at(-step));
    let mut below = leaves(&below).into_iter();
    let expected = map(above, |leaf| {
        let below = below.next().unwrap().1;
        let absent = leaf.clone().into_absent();
        leaf.try_sub(below).map_or(absent, |x| x.mul_scalar(0.5 / step))
    });
    same("gpt2", &found, &expected);

    // The running statistics have no tangent, and the function also takes the images.
    let model: ResNet<B> = load("resnet/torchvision_basic");
    let pixels = Array::<B, 4>::new(Key::new(1).normal([2, 3, 32, 32], &Default::default()));
    let f = |(model, x): (ResNet<Traced>, Array<Traced, 4>)| Array::<_, 2>::new(model.forward(x.val()));
    let none = map(model.clone(), AnyArray::into_absent);
    let direction = Array::new(pixels.val() * 0.1);
    let (value, tangent) = jvp(f, &(model.clone(), pixels.clone()), &(none, direction));
    same("resnet", &value, &Array::new(model.forward(pixels.val())));
    let at = |step: f32| model.forward(pixels.val() * (1.0 + 0.1 * step));
    same("resnet's derivative", &tangent, &Array::new((at(0.01) - at(-0.01)) / 0.02));
}

#[test]
fn clipped_gradients_follow_optax() {
    let fixture = &fixture()["per_example_clip"];
    let (a, b) = (array::<B, 2>(&fixture["grads"][0]), array::<B, 3>(&fixture["grads"][1]));
    let one = (Array::<B, 1>::absent([4]), Array::<B, 2>::absent([2, 3]));
    let grads = Stacked::from_leaves(one, vec![a.into_any(), b.into_any()], 5);
    let settings = PerExampleClip { max_norm: 2.0, noise_multiplier: 0.0 };
    let mean = per_example_clip(grads, settings, Key::new(0));
    close("the first leaf", mean.0.into_any(), &fixture["mean"][0]);
    close("the second leaf", mean.1.into_any(), &fixture["mean"][1]);
}

/// Every combination of two transformations.
#[test]
fn transformations_compose() {
    let x = Array::<B, 1>::new(Tensor::from_floats([0.5, -1.0, 2.0], &Default::default()));
    let ones = Array::<B, 1>::new(Tensor::ones([3], &Default::default()));
    let cube = |x: Array<Traced, 1>| Array::<_, 1>::new(x.val().powi_scalar(3));
    let six_x = Array::new(x.val() * 6.0);
    // Forward over forward.
    let slope = |x: Array<Traced, 1>| {
        let ones = Array::new(x.val().ones_like());
        jvp(cube, &x, &ones).1
    };
    same("jvp of jvp", &jvp(slope, &x, &ones).1, &six_x);
    same("jit of jvp", &jit(slope).call::<B>(x.clone()), &Array::new(x.val().square() * 3.0));
    // Reverse over forward.
    let loss = |x: Array<Autodiff<B>, 1>| {
        let ones = Array::new(x.val().ones_like());
        jvp(cube, &x, &ones).1.val().sum()
    };
    same("grad of jvp", &grad(&x, loss), &six_x);
    // A linear function that is evaluated several times.
    let (value, derivative) = linearize(cube, &x);
    same("value", &value, &Array::new(x.val().powi_scalar(3)));
    for factor in [1.0, -2.0, 0.0] {
        let direction = Array::new(ones.val() * factor);
        same("linearize", &derivative.call(&direction), &Array::new(x.val().square() * 3.0 * factor));
    }
    // A Jacobian for each example.
    let xs = Array::<B, 2>::new(Tensor::stack(vec![x.val(), x.val() * 2.0], 0));
    let found = vmap(|x: Array<Traced, 1>| jacfwd(cube, &x).array::<2>()).call(xs.clone());
    let diagonal = |x: Tensor<B, 1>| Tensor::<B, 2>::eye(3, &Default::default()) * (x.square() * 3.0).unsqueeze();
    same("vmap of jacfwd", &found, &Array::new(Tensor::stack(vec![diagonal(x.val()), diagonal(x.val() * 2.0)], 0)));
    // The gradient of a jitted gradient.
    let (_, twice) = value_and_grad(&x, |x| {
        let inner = jit(|x: Array<Traced, 1>| grad(&x, |x| x.val().powi_scalar(4).sum()));
        inner.call::<Autodiff<B>>(x).val().sum()
    });
    same("grad of a jitted grad", &twice, &Array::new(x.val().square() * 12.0));
}

#[test]
fn rejects_directions_of_another_structure() {
    let f = |(x, i): (Array<Traced, 1>, Array<Traced, 1, Int>)| Array::<_, 1>::new(x.val().select(0, i.val()));
    let x = || Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
    let i = || Array::<B, 1, Int>::new(Tensor::from_ints([1, 0], &Default::default()));
    let (y, tangent) = jvp(f, &(x(), i()), &(x(), Array::absent([2])));
    assert_eq!(y.val().to_data(), tangent.val().to_data());
    let panic_of = |direction| {
        let panic = catch_unwind(AssertUnwindSafe(|| jvp(f, &(x(), i()), &direction))).err().unwrap();
        *panic.downcast::<String>().unwrap()
    };
    let text = panic_of((x(), i()));
    assert!(
        text.contains("the tangent of the argument `1`, i32[2], is i32[2]: give one of its shape, or an absent"),
        "{text}"
    );
    let text = panic_of((Array::new(Tensor::zeros([3], &Default::default())), Array::absent([2])));
    assert!(text.contains("the tangent of the argument `0`, f32[2], is f32[3]"), "{text}");
    let jacobian = jacfwd(f, &(x(), i()));
    assert_eq!(jacobian.blocks().count(), 1);
    let panic = catch_unwind(AssertUnwindSafe(|| jacobian.array::<3>())).err().unwrap();
    let text = panic.downcast::<String>().unwrap();
    assert!(text.contains("has rank 2, but was requested with rank 3"), "{text}");
}
