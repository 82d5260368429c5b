//! Mapped operations of grove: one call computes all examples, as a loop over them does.

use crate::vmap::{floats, two};
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Candle, Flex, GeluApproximation, KeyRanges, ops};
use grove_compile::{Shared, Traced, jit, vmap};
use grove_transform::{stack, unstack, value_and_grad};
use grove_tree::{Array, Key};

type B = Flex;
type A<const D: usize> = Tensor<Autodiff<Traced>, D>;
type X1 = Array<Traced, 1>;
type X2 = Array<Traced, 2>;
type X3 = Array<Traced, 3>;
type X4 = Array<Traced, 4>;

fn ints<const D: usize>(values: impl IntoIterator<Item = i64>, shape: [usize; D]) -> Array<B, D, Int> {
    Array::new(Tensor::from_data(TensorData::new(values.into_iter().collect(), shape), &Default::default()))
}

/// The loss of a result, in which every element has a different gradient.
fn loss<const D: usize>(y: A<D>) -> A<1> {
    (y.clone() * y).sum()
}

/// Compares values and gradients of an operation of two arrays with those of a loop.
fn of_rows(what: &str, shapes: ([usize; 3], [usize; 3]), f: impl Fn(A<2>, A<2>) -> A<2>) {
    let pair = |(x, w): (X2, X2)| {
        let (value, grads) = value_and_grad(&(x, w), |(x, w)| loss(f(x.val(), w.val())));
        (Array::<_, 1>::new(value), grads)
    };
    two(what, pair, (floats(shapes.0, 1), floats(shapes.1, 2)));
}

#[test]
fn rows() {
    let row = |w: &A<2>| w.clone().narrow(0, 0, 1).squeeze_dim::<1>(0);
    let square = ([3, 4, 5], [3, 5, 5]);
    of_rows("linear", square, |x, w| ops::linear(x, w.clone(), Some(row(&w))));
    of_rows("linear of a vector", square, |x, w| {
        let x = x.narrow(0, 2, 1).squeeze_dim::<1>(0);
        ops::linear(x, w.clone(), Some(row(&w))).unsqueeze()
    });
    of_rows("linear of several axes", square, |x, w| ops::linear(x.reshape([2, 2, 5]), w, None).reshape([4, 5]));
    for centred in [true, false] {
        let options = ops::RowNorm { centred, eps: 1e-5 };
        of_rows("row norm", square, |x, w| ops::row_norm(x, row(&w), centred.then(|| row(&w)), options).0);
        of_rows("row norm without a bias", square, |x, w| {
            ops::row_norm(x, row(&w), None, options).0 + w.sum().unsqueeze()
        });
    }
    let alike = ([3, 4, 5], [3, 4, 5]);
    of_rows("gelu", alike, |x, w| ops::gelu(x, GeluApproximation::None) * ops::gelu(w, GeluApproximation::Tanh));
    of_rows("selu", alike, |x, w| ops::selu(x * w));
    of_rows("swiglu", alike, |x, w| ops::swiglu(x.unsqueeze::<3>(), w.unsqueeze::<3>()).squeeze_dim::<2>(0));
    let labels = |x: &A<2>| Tensor::from_data(TensorData::from([1, 0, 4, 2]), &x.device());
    of_rows("nll", alike, |x, w| ops::nll(x.clone() * w, labels(&x)).0.unsqueeze());
    let indices = |x: &A<2>| Tensor::from_data(TensorData::from([[3, 0], [0, 1], [2, 2]]), &x.device());
    of_rows("embedding", alike, |table, w| ops::embedding(table.clone() * w, indices(&table)).reshape([6, 5]));
}

#[test]
fn labels_and_indices_of_examples() {
    let mapped = |(x, i): (X2, Array<Traced, 2, Int>)| {
        let (value, grads) = value_and_grad(&x, |x: Array<Autodiff<Traced>, 2>| {
            let i = Tensor::<Autodiff<Traced>, 2, Int>::from_inner(i.val());
            let found = ops::embedding(x.val(), i.clone()).reshape([4, 5]);
            loss(ops::nll(found, i.reshape([4])).0)
        });
        (Array::<_, 1>::new(value), grads)
    };
    let indices = ints([3, 0, 0, 1, 2, 2, 1, 3, 0, 1, 2, 3], [3, 2, 2]);
    two("embedding and nll", mapped, (floats([3, 4, 5], 1), indices));
}

#[test]
fn rope() {
    let rotated = |(x, angles): (X4, X3)| {
        let (value, grads) = value_and_grad(&x, |x: Array<Autodiff<Traced>, 4>| {
            let angles = Tensor::<Autodiff<Traced>, 3>::from_inner(angles.val());
            let y = ops::apply_rope(x.val(), angles.clone().cos(), angles.sin(), false);
            loss(y + x.val().square())
        });
        (Array::<_, 1>::new(value), grads)
    };
    for batch in [1, 2] {
        two("rope", rotated, (floats([3, 2, 4, 2, 6], 1), floats([3, batch, 4, 3], 2)));
    }
}

/// Attention of queries `[b, 2, 4, 3]` and keys `[b, 2, 5, 3]`, of which the values are made.
fn attends(what: &str, b: usize, options: impl Fn(&A<4>) -> ops::AttentionOptions<Autodiff<Traced>>) {
    let attention = |(q, k): (X4, X4)| {
        let (value, grads) = value_and_grad(&(q, k), |(q, k)| {
            let (q, k) = (q.val(), k.val());
            let options = options(&k);
            loss(ops::attention(q, k.clone(), k.square() - 1.0, options))
        });
        (Array::<_, 1>::new(value), grads)
    };
    two(what, attention, (floats([3, b, 2, 4, 3], 1), floats([3, b, 2, 5, 3], 2)));
}

#[test]
fn attention() {
    let plain = |causal| ops::AttentionOptions {
        scale: 0.7,
        visible: KeyRanges::new(causal),
        mask: None,
        bias: None,
        dropout: None,
    };
    for b in [1, 2] {
        for causal in [false, true] {
            attends("attention", b, |_| plain(causal));
        }
        attends("a window", b, |_| ops::AttentionOptions {
            visible: KeyRanges { window: Some(2), ..KeyRanges::new(true) },
            ..plain(true)
        });
        attends("padding and lengths", b, |k| {
            let each = |values: [i64; 2]| Some(Tensor::from_data(TensorData::from(&values[..b]), &k.device()));
            let visible = KeyRanges { padding: each([1, 0]), lengths: each([4, 3]), ..KeyRanges::new(false) };
            ops::AttentionOptions { visible, ..plain(false) }
        });
        for rows in [1, b] {
            let mask = |k: &A<4>| -> Tensor<Autodiff<Traced>, 4, Bool> {
                let pattern = Key::new(5).bernoulli([rows, 1, 4, 5], 0.3, &k.device());
                Tensor::from_inner(pattern)
            };
            attends("a shared mask", b, |k| ops::AttentionOptions { mask: Some(mask(k)), ..plain(false) });
            attends("a mask of each example", b, |k| {
                let mask = k.clone().narrow(0, 0, rows).sum_dim(3).swap_dims(2, 3).greater_elem(0.0);
                ops::AttentionOptions { mask: Some(mask), ..plain(false) }
            });
            attends("a bias of each example", b, |k| {
                let bias = k.clone().narrow(0, 0, rows).sum_dim(3).swap_dims(2, 3);
                ops::AttentionOptions { bias: Some(bias), ..plain(false) }
            });
        }
    }
}

#[test]
fn softmax() {
    let scores = |(x, y): (X4, X1)| {
        let (value, grads) = value_and_grad(&(x, y), |(x, y)| {
            let visible = KeyRanges::new(true);
            loss(ops::masked_softmax(x.val() * y.val().unsqueeze(), 0.5, &visible))
        });
        (Array::<_, 1>::new(value), grads)
    };
    two("masked softmax", scores, (floats([3, 2, 2, 4, 5], 1), floats([3, 5], 2)));
}

/// The gradients of a block for each example, mapped and one by one.
fn of_block<C: Backend>(dtype: DType) -> [Vec<f32>; 2] {
    let device = Default::default();
    let array = |shape: [usize; 3], seed| {
        Array::<C, 3>::new(Key::new(seed).uniform::<C, 3>(shape, -1.0, 1.0, &device).cast(dtype))
    };
    let block = |(x, w): (X2, X2)| {
        let (_, grads) = value_and_grad(&(x, w), |(x, w)| {
            let (x, w) = (x.val(), w.val());
            let scale = w.clone().narrow(0, 0, 1).squeeze_dim::<1>(0);
            let x = ops::row_norm(x, scale.clone(), Some(scale), ops::RowNorm { centred: true, eps: 1e-5 }).0;
            let heads = ops::linear(x, w, None).reshape([1, 4, 2, 3]).swap_dims(1, 2);
            let options = ops::AttentionOptions {
                scale: 1.0,
                visible: KeyRanges::new(true),
                mask: None,
                bias: None,
                dropout: None,
            };
            let y = ops::attention(heads.clone(), heads.clone(), heads, options);
            loss(ops::gelu(y, GeluApproximation::None)).cast(DType::F32)
        });
        let in_f32 = |x: Array<Traced, 2>| Array::<Traced, 2>::new(x.val().cast(DType::F32));
        (in_f32(grads.0), in_f32(grads.1))
    };
    let (xs, w) = (array([3, 4, 6], 1), Array::<C, 2>::new(array([1, 6, 6], 2).val().squeeze_dim(0)));
    let (dx, dw) = vmap(block).call((xs.clone(), Shared(w.clone())));
    let values = |x: Tensor<C, 3>| x.into_data().convert::<f32>().to_vec::<f32>().expect("numbers");
    let mapped = [values(dx.val()), values(dw.val())].concat();
    let jitted = jit(block);
    let alone = unstack(xs).into_iter().map(|x| jitted.call::<C>((x, w.clone())));
    let (dx, dw): (Vec<_>, Vec<_>) = alone.unzip();
    [mapped, [values(stack(dx).val()), values(stack(dw).val())].concat()]
}

#[test]
fn other_types_and_backends() {
    for (what, [mapped, alone], tolerance) in [
        ("flex", of_block::<Flex>(DType::F32), 1e-5),
        ("flex in bf16", of_block::<Flex>(DType::BF16), 3e-2),
        ("flex in f16", of_block::<Flex>(DType::F16), 4e-3),
        ("candle", of_block::<Candle>(DType::F32), 1e-5),
        ("candle in f16", of_block::<Candle>(DType::F16), 4e-3),
    ] {
        let largest = alone.iter().fold(0.0_f32, |largest, x| largest.max(x.abs()));
        assert!(largest > 0.1 && mapped.len() == 3 * (24 + 36), "{what}: {alone:?}");
        for (found, expected) in mapped.iter().zip(&alone) {
            assert!((found - expected).abs() <= tolerance * largest, "{what}: {found}, alone {expected}");
        }
    }
}

/// A mapped function calls the operations that the function calls, not their compositions.
#[test]
fn mapped_functions_keep_their_kernels() {
    let f = |(x, w): (X3, X2)| {
        let (value, grads) = value_and_grad(&(x, w), |(x, w)| {
            let bias = w.val().narrow(0, 0, 1).squeeze_dim::<1>(0);
            let x: A<3> = x.val();
            let norm = ops::RowNorm { centred: true, eps: 1e-5 };
            let x = ops::row_norm(x.reshape([8, 6]), bias.clone(), Some(bias), norm).0.reshape([2, 4, 6]);
            let x = ops::gelu(ops::linear(x, w.val(), None), GeluApproximation::None);
            let heads = x.reshape([2, 4, 2, 3]).swap_dims(1, 2);
            let options = ops::AttentionOptions {
                scale: 1.0,
                visible: KeyRanges::new(false),
                mask: None,
                bias: None,
                dropout: None,
            };
            loss(ops::attention(heads.clone(), heads.clone(), heads, options))
        });
        (Array::<_, 1>::new(value), grads)
    };
    let of_one = jit(f);
    of_one.call::<B>((floats([2, 4, 6], 1), floats([6, 6], 2)));
    let mapped = jit(|(xs, w): (X4, X2)| vmap(f).call::<Traced, _>((xs, Shared(w))));
    mapped.call::<B>((floats([3, 2, 4, 6], 1), floats([6, 6], 2)));
    let (of_one, mapped) = (of_one.graph().expect("a graph"), mapped.graph().expect("a graph"));
    let names = ["row_norm", "linear", "gelu", "attention"];
    for name in names.iter().flat_map(|name| [name.to_string(), format!("{name}_vjp")]) {
        assert_eq!(mapped.counts().get(&name), of_one.counts().get(&name), "{name} in {mapped}, not as in {of_one}");
        assert!(mapped.counts().contains_key(&name), "{name} is not in {mapped}");
    }
}
