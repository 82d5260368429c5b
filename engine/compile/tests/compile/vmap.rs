//! Mapped functions against loops over the examples.

use crate::common;
use burn::tensor::{
    Int, Tensor, TensorData,
    activation::{log_softmax, softmax},
    module::{adaptive_avg_pool2d, avg_pool2d, conv1d, conv2d, max_pool2d, max_pool2d_with_indices},
    ops::ConvOptions,
};
use grove_backend::{Autodiff, Flex, GeluApproximation, ops};
use grove_compile::{Mapped, Over, Shared, Traced, jit, per_example_grads, vmap};
use grove_models::{Bert, CausalLm, Gpt2, Pretrained, ResNet, Vit};
use grove_text::TextIds;
use grove_transform::{Stack, Stacked, Unstack, grad, stack, unstack, value_and_grad};
use grove_tree::{Array, Key, Tree, map};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
};

type B = Flex;
type T<const D: usize, K = burn::tensor::Float> = Tensor<Traced, D, K>;

/// Random numbers between -2 and 2 without ties.
pub fn floats<const D: usize>(shape: [usize; D], seed: u64) -> Array<B, D> {
    Array::new(Key::new(seed).uniform(shape, -2.0, 2.0, &Default::default()))
}

fn ints<const D: usize>(shape: [usize; D], below: i64) -> Array<B, D, Int> {
    let ints = (0..shape.iter().product::<usize>()).map(|i| (i as i64 * 7919 + 13) % below).collect();
    Array::new(Tensor::from_data(TensorData::new(ints, shape), &Default::default()))
}

/// Fails unless two trees agree, relative to the largest value of each leaf.
fn same<S: Tree<B>>(what: &str, found: &S, expected: &S) {
    common::same::<B, S>(what, found, expected, 2e-5, 1e-3);
}

/// Compares a function of one array, mapped over the examples, with a loop.
fn one<X, Y>(what: &str, f: impl Fn(<X::Step as Tree<B>>::On<Traced>) -> Y, xs: X)
where
    X: Unstack<B> + Mapped<B, Example = X::Step>,
    <X::Step as Tree<B>>::On<Traced>: Tree<Traced, On<B> = X::Step>,
    X::Step: Tree<B>,
    Y: Tree<Traced>,
    Y::On<B>: Stack<B>,
{
    let jitted = jit(&f);
    let expected = unstack(xs.clone()).into_iter().map(|x| jitted.call::<B>(x)).collect();
    same(what, &vmap(&f).call(xs), &stack(expected));
}

/// Compares a function of two arrays with a loop: both batched, and each of them shared.
pub fn two<X, Z, Y>(
    what: &str,
    f: impl Fn((<X::Step as Tree<B>>::On<Traced>, <Z::Step as Tree<B>>::On<Traced>)) -> Y,
    (xs, zs): (X, Z),
) where
    X: Unstack<B> + Mapped<B, Example = X::Step>,
    Z: Unstack<B> + Mapped<B, Example = Z::Step>,
    <X::Step as Tree<B>>::On<Traced>: Tree<Traced, On<B> = X::Step>,
    <Z::Step as Tree<B>>::On<Traced>: Tree<Traced, On<B> = Z::Step>,
    Y: Tree<Traced>,
    Y::On<B>: Stack<B>,
{
    let jitted = jit(&f);
    let (x_list, z_list) = (unstack(xs.clone()), unstack(zs.clone()));
    let call = |i: usize, j: usize| jitted.call::<B>((x_list[i].clone(), z_list[j].clone()));
    let of = |pairs: [(usize, usize); 3]| stack(pairs.map(|(i, j)| call(i, j)).into());
    same(what, &vmap(&f).call((xs.clone(), zs.clone())), &of([(0, 0), (1, 1), (2, 2)]));
    let shared = vmap(&f).call((Shared(x_list[1].clone()), zs));
    same(&format!("{what}, the first one shared"), &shared, &of([(1, 0), (1, 1), (1, 2)]));
    let shared = vmap(&f).call((xs, Shared(z_list[1].clone())));
    same(&format!("{what}, the second one shared"), &shared, &of([(0, 1), (1, 1), (2, 1)]));
}

fn a<const D: usize>(x: T<D>) -> Array<Traced, D> {
    Array::new(x)
}

type A<const D: usize> = Tensor<Autodiff<Traced>, D>;
type X1 = Array<Traced, 1>;
type X2 = Array<Traced, 2>;
type X3 = Array<Traced, 3>;
type X4 = Array<Traced, 4>;
type I1 = Array<Traced, 1, Int>;
type I2 = Array<Traced, 2, Int>;

#[test]
fn elementwise() {
    one(
        "elementwise",
        |x: X2| a(x.val().tanh().exp() * 2.0 - x.val().abs().sqrt().powi_scalar(3)),
        floats([3, 2, 4], 1),
    );
    one("clamp", |x: X2| a(x.val().clamp(-0.5, 0.5)), floats([3, 2, 4], 1));
    one(
        "types",
        |x: X2| Array::<_, 2, Int>::new(x.val().int() + x.val().greater_elem(0.0).int()),
        floats([3, 2, 4], 1),
    );
    one("mask_fill", |x: X2| a(x.val().mask_fill(x.val().lower_elem(0.2), 7.0)), floats([3, 2, 4], 1));
    let pair = || (floats([3, 2, 4], 1), floats([3, 2, 4], 2));
    two("two", |(x, y): (X2, X2)| a(x.val() * y.val() - x.val() / y.val()), pair());
    two("broadcast", |(x, y): (X2, X1)| a(x.val() + y.val().unsqueeze()), (floats([3, 2, 4], 1), floats([3, 4], 2)));
    two("where", |(x, y): (X2, X2)| a(x.val().mask_where(y.val().greater(x.val()), y.val())), pair());
    two("maximum", |(x, y): (X2, X2)| a(x.val().max_pair(y.val())), pair());
}

#[test]
fn reductions_and_orders() {
    one(
        "whole",
        |x: X2| (a(x.val().sum()), (a(x.val().mean()), a(x.val().max()), (a(x.val().min()), a(x.val().prod())))),
        floats([3, 2, 4], 1),
    );
    for axis in 0..2 {
        one(
            "along",
            move |x: X2| (a(x.val().sum_dim(axis)), a(x.val().max_dim(axis)), a(x.val().prod_dim(axis))),
            floats([3, 2, 4], 1),
        );
        one(
            "positions",
            move |x: X2| Array::<_, 2, Int>::new(x.val().argmax(axis) - x.val().argmin(axis)),
            floats([3, 2, 4], 1),
        );
        one("cumulative", move |x: X2| (a(x.val().cumsum(axis)), a(x.val().cumprod(axis))), floats([3, 2, 4], 1));
        let with_positions = move |x: X2| {
            let (y, i) = x.val().max_dim_with_indices(axis);
            (a(y), Array::<_, 2, Int>::new(i))
        };
        one("with positions", with_positions, floats([3, 2, 4], 1));
    }
    one("top_k", |x: X2| a(x.val().topk(2, 1)), floats([3, 2, 4], 1));
    one("softmax", |x: X2| a(softmax(x.val(), 0) + log_softmax(x.val(), 1)), floats([3, 2, 4], 1));
}

#[test]
fn shapes() {
    one("reshape", |x: X2| a(x.val().reshape([4, 2]).transpose().flip([0])), floats([3, 2, 4], 1));
    one("permute", |x: X3| a(x.val().permute([2, 0, 1])), floats([3, 2, 4, 5], 1));
    one("expand", |x: X1| a(x.val().expand([3, 2, 4])), floats([3, 4], 1));
    one("repeat", |x: X2| a(x.val().repeat_dim(1, 3)), floats([3, 2, 4], 1));
    one("slice", |x: X2| a(x.val().slice([0..1, 1..3])), floats([3, 2, 4], 1));
    one("unfold", |x: X2| a::<3>(x.val().unfold(1, 2, 1)), floats([3, 2, 4], 1));
    let pair = || (floats([3, 2, 4], 1), floats([3, 2, 2], 2));
    two("cat", |(x, y): (X2, X2)| a(Tensor::cat(vec![x.val(), y.val(), x.val()], 1)), pair());
    two("slice_assign", |(x, y): (X2, X2)| a(x.val().slice_assign([0..2, 1..3], y.val())), pair());
}

#[test]
fn products() {
    two("vectors", |(x, y): (X1, X1)| a((x.val() * y.val()).sum()), (floats([3, 4], 1), floats([3, 4], 2)));
    two("matrices", |(x, y): (X2, X2)| a(x.val().matmul(y.val())), (floats([3, 2, 4], 1), floats([3, 4, 5], 2)));
    two("batches", |(x, y): (X3, X3)| a(x.val().matmul(y.val())), (floats([3, 2, 2, 4], 1), floats([3, 2, 4, 5], 2)));
    two(
        "broadcast",
        |(x, y): (X3, X2)| a(x.val().matmul(y.val().unsqueeze())),
        (floats([3, 2, 2, 4], 1), floats([3, 4, 5], 2)),
    );
    two(
        "linear",
        |(x, y): (X3, X2)| a(ops::linear(x.val(), y.val(), Some(y.val().slice(0..1).squeeze_dim(0)))),
        (floats([3, 2, 2, 4], 1), floats([3, 4, 5], 2)),
    );
    two(
        "Burn's linear",
        |(x, y): (X2, X2)| a(burn::tensor::module::linear(x.val(), y.val(), Some(y.val().slice(0..1).squeeze_dim(0)))),
        (floats([3, 2, 4], 1), floats([3, 4, 5], 2)),
    );
}

#[test]
fn positions() {
    for axis in 0..2 {
        two(
            "select",
            move |(x, i): (X2, I1)| a(x.val().select(axis, i.val())),
            (floats([3, 4, 5], 1), ints([3, 6], 4)),
        );
        two(
            "select_assign",
            move |(x, i): (X2, I1)| {
                let part = x.val().select(axis, i.val()) * 2.0;
                a(x.val().select_assign(axis, i.val(), part, burn::tensor::IndexingUpdateOp::Add))
            },
            (floats([3, 4, 5], 1), ints([3, 6], 4)),
        );
    }
    two("gather", |(x, i): (X2, I2)| a(x.val().gather(1, i.val())), (floats([3, 4, 5], 1), ints([3, 4, 2], 5)));
    two(
        "scatter",
        |(x, i): (X2, I2)| {
            let part = x.val().gather(1, i.val());
            a(x.val().scatter(1, i.val(), part, burn::tensor::IndexingUpdateOp::Add))
        },
        (floats([3, 4, 5], 1), ints([3, 4, 2], 5)),
    );
    two(
        "embedding",
        |(w, i): (X2, I2)| a(burn::tensor::module::embedding(w.val(), i.val()) + ops::embedding(w.val(), i.val())),
        (floats([3, 7, 5], 1), ints([3, 2, 4], 7)),
    );
    two(
        "gradient of an embedding",
        |(w, i): (X2, I2)| {
            grad(&w, |w| {
                let ids = || Tensor::<Autodiff<Traced>, 2, Int>::from_inner(i.val());
                let y = burn::tensor::module::embedding(w.val(), ids()) * ops::embedding(w.val(), ids());
                (y.clone() * y).sum()
            })
        },
        (floats([3, 7, 5], 1), ints([3, 2, 4], 7)),
    );
}

/// Compares values and gradients of a function of an image and a weight.
macro_rules! image {
    ($what:literal, $X:ident, $W:ident, $f:expr, $images:expr, $weights:expr $(,)?) => {
        two(
            $what,
            |(x, w): ($X, $W)| {
                let (value, grads) = value_and_grad(&(x, w), |(x, w)| {
                    let y = $f(x.val(), w.val());
                    (y.clone() * y).sum()
                });
                (Array::<_, 1>::new(value), grads)
            },
            ($images, $weights),
        )
    };
}

#[test]
fn convolutions_and_pools() {
    let bias = |w: &A<4>| w.clone().sum_dim(3).sum_dim(2).sum_dim(1).reshape([-1]);
    for (stride, padding, groups) in [(1, 1, 1), (2, 0, 1), (1, 1, 2)] {
        let options = || ConvOptions::<2>::new([stride; 2], [padding; 2], [1, 1], groups);
        image!(
            "Burn's conv2d",
            X4,
            X4,
            |x, w: A<4>| conv2d(x, w.clone(), Some(bias(&w)), options()),
            floats([3, 2, 4, 6, 5], 1),
            floats([3, 6, 4 / groups, 3, 3], 2),
        );
    }
    image!(
        "conv1d",
        X3,
        X3,
        |x, w| conv1d(x, w, None, ConvOptions::<1>::new([1], [1], [1], 1)),
        floats([3, 2, 4, 6], 1),
        floats([3, 5, 4, 3], 2),
    );
    let pool = |f: fn(A<4>) -> A<4>| {
        image!(
            "pool",
            X4,
            X1,
            |x, w: A<1>| f(x) * w.reshape([1, 1, 1, 1]),
            floats([3, 2, 4, 6, 6], 1),
            floats([3, 1], 2)
        );
    };
    pool(|x| avg_pool2d(x, [2, 2], [2, 2], [0, 0], true, false));
    pool(|x| adaptive_avg_pool2d(x, [2, 3]));
    pool(|x| max_pool2d(x, [3, 3], [2, 2], [1, 1], [1, 1], false));
    one(
        "positions of a pool",
        |x: X4| {
            let (y, i) = max_pool2d_with_indices(x.val(), [2, 2], [2, 2], [0, 0], [1, 1], false);
            (a(y), Array::<_, 4, Int>::new(i))
        },
        floats([3, 2, 4, 6, 6], 1),
    );
}

#[test]
fn operations_of_grove_and_their_gradients() {
    let g = |f: &dyn Fn(A<3>, A<1>) -> A<3>| {
        two(
            "an operation",
            |(x, w): (X3, X1)| {
                let (value, grads) = value_and_grad(&(x, w), |(x, w)| {
                    let y = f(x.val(), w.val());
                    (y.clone() * y).sum()
                });
                (Array::new(value), grads)
            },
            (floats([3, 2, 4, 5], 1), floats([3, 5], 2)),
        );
    };
    g(&|x, w| ops::gelu(x, GeluApproximation::Tanh) * w.unsqueeze());
    g(&|x, w| ops::gelu(x, GeluApproximation::None) * w.unsqueeze());
    for centred in [true, false] {
        g(&|x, w| {
            let options = ops::RowNorm { centred, eps: 1e-5 };
            let rows = x.reshape([8, 5]);
            ops::row_norm(rows, w.clone(), centred.then_some(w), options).0.reshape([2, 4, 5])
        });
    }
    g(&|x, w| ops::selu(x * w.unsqueeze()));
    one(
        "dropout",
        |x: X2| a(ops::dropout(x.val(), ops::Dropout::new(Key::new(3).words(), 0.5).unwrap())),
        floats([3, 4, 50], 1),
    );
}

#[test]
fn axes() {
    let x = floats([2, 3, 4], 1);
    let f = |x: X2| a(x.val() * 2.0);
    let expected = Array::new(x.val() * 2.0);
    for axis in 0..3 {
        same("in and out", &vmap(f).out_axes([axis]).call(Over(axis, x.clone())), &expected);
    }
    let two_results = |x: X1| (a(x.val()), a(x.val() + 1.0));
    let y = floats([2, 3], 1);
    let (kept, moved) = vmap(two_results).out_axes([0, 1]).call(y.clone());
    same("the first", &kept, &y);
    same("the second", &moved, &Array::new((y.val() + 1.0).transpose()));
}

#[test]
fn nested_under_jit_and_of_gradients() {
    let (xs, ys) = (floats([3, 5], 1), floats([4, 5], 2));
    let dot = |(x, y): (X1, X1)| a((x.val() * y.val()).sum());
    // The inner function receives the arrays of the outer one as arguments.
    let pairs = |(xs, ys): (X2, X2)| {
        let row = |(x, ys): (X1, X2)| vmap(dot).call::<Traced, _>((Shared(x), ys));
        vmap(row).call::<Traced, _>((xs, Shared(ys)))
    };
    let found = jit(pairs).call::<B>((xs.clone(), ys.clone()));
    same("all pairs", &found.clone(), &Array::new(xs.val().matmul(ys.val().transpose()).reshape([3, 4, 1])));
    // The derivative of a mapped function.
    let loss = |x: Array<Autodiff<B>, 2>| {
        let cubes = vmap(|x: X1| a(x.val().powi_scalar(3))).call::<Autodiff<B>, _>(x);
        cubes.val().sum()
    };
    same("gradient", &grad(&xs, loss), &Array::new(xs.val().square() * 3.0));
}

fn load<M: Pretrained<B>>(path: &str) -> M {
    M::from_path(Path::new("../../models/tests/fixtures").join(path), &Default::default(), None).unwrap().0
}

/// Returns the message of a panic.
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).err().expect("a panic");
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => (*panic.downcast::<&str>().expect("a text")).to_owned(),
    }
}

#[test]
fn models_of_one_text_or_image() {
    let (model, ids): (Gpt2<B>, _) = (load("gpt2/tiny_a"), ints([3, 5], 20));
    let expected = Array::new(model.forward(ids.val(), None));
    let f = |(model, ids): (Gpt2<Traced>, I1)| {
        Array::<_, 2>::new(model.forward(ids.val().unsqueeze(), None).squeeze_dim(0))
    };
    same("gpt2", &vmap(f).call((Shared(model), ids)), &expected);

    let (model, pixels): (ResNet<B>, _) = (load("resnet/torchvision_basic"), floats([3, 3, 32, 32], 1));
    let expected = Array::new(model.forward(pixels.val()));
    let f = |(model, x): (ResNet<Traced>, X3)| Array::<_, 1>::new(model.forward(x.val().unsqueeze()).squeeze_dim(0));
    same("resnet", &vmap(f).call((Shared(model), pixels)), &expected);

    let model: Vit<B> = load("vit/transformers");
    let pixels = floats([3, 3, model.config.image_size[0], model.config.image_size[1]], 1);
    let expected = Array::new(model.forward(pixels.val(), None));
    let f = |(model, x): (Vit<Traced>, X3)| Array::<_, 1>::new(model.forward(x.val().unsqueeze(), None).squeeze_dim(0));
    same("vit", &vmap(f).call((Shared(model), pixels)), &expected);

    let model: Bert<B> = load("bert/bert_model");
    let text = |ids: [u32; 4]| model.batch(&[TextIds { ids: ids.to_vec(), token_types: vec![0; 4] }]).unwrap();
    let texts = [[1, 5, 6, 2], [1, 9, 8, 2], [1, 4, 4, 2]].map(text);
    let expected: Vec<_> = texts.iter().map(|text| Array::new(model.forward(text, None))).collect();
    let f = |(model, text): (Bert<Traced>, grove_models::bert::TextBatch<Traced>)| {
        Array::<_, 3>::new(model.forward(&text, None))
    };
    same("bert", &vmap(f).call((Shared(model), Stacked::new(texts.to_vec()))), &stack(expected));
}

/// An ensemble is one tree with stacked leaves.
#[test]
fn many_models_of_one_input() {
    let model: Gpt2<B> = load("gpt2/tiny_a");
    let other = map(model.clone(), |leaf| leaf.mul_scalar(1.1));
    let ids = ints([2, 5], 20);
    let expected = [&model, &other].map(|model| Array::new(model.forward(ids.val(), None)));
    let f = |(model, ids): (Gpt2<Traced>, I2)| Array::<_, 3>::new(model.forward(ids.val(), None));
    let found = vmap(f).call((Stacked::new(vec![model, other]), Shared(ids)));
    same("ensemble", &found, &stack(expected.into()));
}

#[test]
fn per_example_gradients_match_a_loop() {
    let (model, ids): (Gpt2<B>, _) = (load("gpt2/tiny_a"), ints([3, 5], 20));
    let found = per_example_grads(&model, ids.clone(), |model, ids| {
        let ids = || ids.val().unsqueeze::<2>();
        model.next_token_loss(ids(), ids(), None)
    });
    for (i, ids) in unstack(ids).into_iter().enumerate() {
        let ids = || Tensor::<Autodiff<B>, 2, Int>::from_inner(ids.val().unsqueeze());
        let expected = grad(&model, |model| model.next_token_loss(ids(), ids(), None));
        same("gpt2", &found.get(i), &expected);
    }

    let model: ResNet<B> = load("resnet/torchvision_basic");
    let (pixels, labels) = (floats([3, 3, 32, 32], 1), ints([3], 2));
    let labels = Array::<B, 2, Int>::new(labels.val().reshape([3, 1]));
    let found = per_example_grads(&model, (pixels.clone(), labels.clone()), |model, (pixels, label)| {
        model.loss(pixels.val().unsqueeze(), label.val())
    });
    for (i, (pixels, label)) in unstack((pixels, labels)).into_iter().enumerate() {
        let expected = grad(&model, |model| {
            model.loss(Tensor::from_inner(pixels.val().unsqueeze()), Tensor::from_inner(label.val()))
        });
        same("resnet", &found.get(i), &expected);
    }
}

#[test]
fn rejects_invalid_batch_axes() {
    let f = |(x, y): (X1, X1)| a(x.val() + y.val());
    let text = panic_of(|| vmap(f).call((floats([3, 2], 1), floats([4, 2], 1))));
    assert!(
        text.contains("the argument `0` of a mapped function has 3 examples, but the argument `1` has 4"),
        "{text}"
    );
    let text = panic_of(|| vmap(f).call((Shared(floats([2], 1)), Shared(floats([2], 1)))));
    assert!(text.contains("no argument of a mapped function has a batch axis"), "{text}");
    let text = panic_of(|| vmap(f).call((Over(2, floats([3, 2], 1)), floats([3, 2], 1))));
    assert!(text.contains("the argument `0` of a mapped function, f32[3,2], has no axis 2"), "{text}");
    let text = panic_of(|| vmap(f).out_axes([2]).call((floats([3, 2], 1), floats([3, 2], 1))));
    assert!(text.contains("axis 2 of `out_axes` is out of range"), "{text}");
}

#[test]
fn no_examples_give_results_of_no_examples() {
    let none = |shape: [usize; 2]| Array::<B, 2>::new(Tensor::zeros(shape, &Default::default()));
    let double = vmap(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val() * 2.0));
    assert_eq!(double.call::<B, _>(none([0, 3])).shape(), [0, 3]);
    let outer = vmap(|(w, x): (Array<Traced, 1>, Array<Traced, 1>)| {
        let outer = w.val().unsqueeze_dim::<2>(1) * x.val().unsqueeze_dim::<2>(0);
        (Array::<_, 2>::new(outer.clone()), Array::<_, 1, Int>::new(outer.sum().int()))
    });
    let (outer, sum) = outer.call::<B, _>((Shared(floats([4], 1)), none([0, 3])));
    assert_eq!((outer.shape(), sum.shape()), ([0, 4, 3], [0, 1]));
    let columns = vmap(|x: Array<Traced, 1>| x).out_axes([1]).call::<B, _>(none([0, 3]));
    assert_eq!(columns.shape(), [3, 0]);
    // An argument that no example uses has a gradient of zero.
    let gradient = grad(&floats([3], 2), |w: Array<Autodiff<B>, 1>| {
        let x = Array::<Autodiff<B>, 2>::new(Tensor::zeros([0, 3], &Default::default()));
        vmap(|(w, x): (Array<Traced, 1>, Array<Traced, 1>)| Array::<_, 1>::new(w.val() * x.val()))
            .call::<Autodiff<B>, _>((Shared(w), x))
            .val()
            .sum()
    });
    assert_eq!(gradient.val().into_data().to_vec::<f32>().unwrap(), [0.0; 3]);
}
