//! Sorting, top-k, one-hot vectors and index updates in every mode, against JAX.

use crate::common;
use burn::tensor::{Int, Tensor, TensorPrimitive};
use grove_backend::{
    Autodiff, Backend, Candle, Flex,
    ops::{argsort, argsort_int, index_copy, one_hot, sort, top_k},
};
use grove_compile::{Traced, hvp, jit, jvp, linearize, vmap};
use grove_transform::{from_inner, grad, vjp};
use grove_tree::Array;

type B = Flex;
const NAN: f32 = f32::NAN;
const INF: f32 = f32::INFINITY;

fn array<B: Backend, const M: usize, const N: usize>(values: [[f32; N]; M]) -> Array<B, 2> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn ints<B: Backend, const N: usize>(values: [i32; N]) -> Array<B, 1, Int> {
    Array::new(Tensor::from_ints(values, &Default::default()))
}

fn w<B: Backend>() -> Array<B, 2> {
    array([[0.5, NAN, -0.0, 0.0, INF, 0.5], [-1.0, 3.0, 3.0, -INF, 2.0, -1.0]])
}

fn list<B: Backend>(x: Tensor<B, 2, Int>) -> Vec<i64> {
    x.into_data().iter::<i64>().collect()
}

/// Sorts an array in several ways.
fn orders<B: Backend>(x: Array<B, 2>) -> (Array<B, 2>, [Array<B, 2, Int>; 4], Array<B, 2>) {
    let (largest, positions) = top_k(x.val(), 1, 3);
    let int = |x: Tensor<B, 2, Int>| Array::<B, 2, Int>::new(x);
    let of_axis = |axis, descending| int(argsort(x.val(), axis, descending));
    (
        Array::new(sort(x.val(), 1, false)),
        [of_axis(1, false), of_axis(1, true), of_axis(0, false), int(positions)],
        Array::new(largest),
    )
}

fn orders_match_jax<B: Backend>() {
    let jitted = jit(orders);
    for (what, (sorted, positions, largest)) in [("eager", orders(w::<B>())), ("jit", jitted.call::<B>(w()))] {
        let text = |x: Array<B, 2>| format!("{:?}", x.val().into_data().iter::<f32>().collect::<Vec<_>>());
        assert_eq!(text(sorted), "[-0.0, 0.0, 0.5, 0.5, inf, NaN, -inf, -1.0, -1.0, 2.0, 3.0, 3.0]", "{what}");
        assert_eq!(text(largest), "[NaN, inf, 0.5, 3.0, 3.0, 2.0]", "{what}");
        let found = positions.map(|positions| list(positions.val()));
        let expected = [
            vec![2, 3, 0, 5, 4, 1, 3, 0, 5, 4, 1, 2],
            vec![1, 4, 0, 5, 2, 3, 1, 2, 4, 0, 5, 3],
            vec![1, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0],
            vec![1, 4, 0, 1, 2, 4],
        ];
        assert_eq!(found, expected, "{what}");
    }
    let graph = jitted.graph().unwrap();
    assert_eq!(graph.counts()["argsort"], 3, "{graph}");
}

#[test]
fn orders_match_jax_flex() {
    orders_match_jax::<Flex>();
}

#[test]
fn orders_match_jax_candle() {
    orders_match_jax::<Candle>();
}

fn weights<B: Backend>(x: &Tensor<B, 2>) -> Tensor<B, 2> {
    let [m, n] = x.dims();
    Tensor::<B, 1, Int>::arange(1..(m * n) as i64 + 1, &x.device()).float().reshape([m, n])
}

fn sorted<B: Backend>(x: Array<B, 2>) -> Tensor<B, 1> {
    (sort(x.val(), 1, false) * weights(&x.val())).sum()
}

fn largest<B: Backend>(x: Array<B, 2>) -> Tensor<B, 1> {
    (top_k(x.val(), 1, 2).0 * weights(&x.val()).narrow(1, 0, 2)).powf_scalar(2.0).sum()
}

#[test]
fn gradients_go_to_the_places_of_elements() {
    let u = || array::<B, 2, 4>([[0.5, 0.2, 0.5, -1.0], [2.0, -3.0, 1.0, 1.0]]);
    let expected = array([[3.0, 2.0, 4.0, 1.0], [8.0, 5.0, 6.0, 7.0]]);
    common::same::<B, _>("sort", &grad(&u(), sorted), &expected, 0.0, 1.0);
    let jitted = jit(|x: Array<Traced, 2>| grad(&x, sorted));
    common::same::<B, _>("jitted sort", &jitted.call::<B>(u()), &expected, 0.0, 1.0);
    // 2 k^2 u at the positions of the two largest elements.
    let expected = array([[1.0, 0.0, 4.0, 0.0], [100.0, 0.0, 72.0, 0.0]]);
    common::same::<B, _>("top_k", &grad(&u(), largest), &expected, 0.0, 1.0);
    let jitted = jit(|x: Array<Traced, 2>| grad(&x, largest));
    common::same::<B, _>("jitted top_k", &jitted.call::<B>(u()), &expected, 0.0, 1.0);
    let ones = Array::<B, 2>::new(u().val().ones_like());
    let slope = |x: Array<B, 2>| (expected.val() * x.val()).sum().into_scalar();
    let (_, along) = jvp(|x| Array::<_, 1>::new(largest(x)), &u(), &ones);
    assert_eq!(along.val().into_scalar(), slope(ones.clone()));
    let (_, derivative) = linearize(|x| Array::<_, 1>::new(largest(x)), &u());
    assert_eq!(derivative.call(&u()).val().into_scalar(), slope(u()));
    let second = hvp(largest, &u(), &ones);
    let expected = array([[2.0, 0.0, 8.0, 0.0], [50.0, 0.0, 72.0, 0.0]]);
    common::same::<B, _>("hvp", &second, &expected, 0.0, 1.0);
    let rows = vmap(|x: Array<Traced, 1>| Array::<_, 1>::new(sort(x.val(), 0, true))).call(u());
    common::same::<B, _>("vmap", &rows, &Array::new(sort(u().val(), 1, true)), 0.0, 1.0);
}

/// All elements, largest first.
fn all<B: Backend>(x: Tensor<B, 2>) -> (Tensor<B, 2>, Tensor<B, 2, Int>) {
    let n = x.dims()[1];
    top_k(x, 1, n)
}

/// The largest elements by the operation of backends. Burn's method `topk` refuses to give all of them.
fn all_of_backend<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let n = x.dims()[1];
    Tensor::from_primitive(TensorPrimitive::Float(B::float_topk(x.into_primitive().tensor(), 1, n)))
}

fn all_weighted<B: Backend>(x: Array<B, 2>) -> Tensor<B, 1> {
    (all(x.val()).0 * weights(&x.val())).sum()
}

fn all_of_backend_weighted<B: Backend>(x: Array<B, 2>) -> Tensor<B, 1> {
    (all_of_backend(x.val()) * weights(&x.val())).sum()
}

fn as_many_as_there_are<B: Backend>() {
    let u = || array::<B, 2, 4>([[0.5, 0.2, 0.7, -1.0], [2.0, -3.0, 1.0, 1.5]]);
    let expected = array([[0.7, 0.5, 0.2, -1.0], [2.0, 1.5, 1.0, -3.0]]);
    let (values, indices) = all(u().val());
    common::same::<B, _>("eager", &Array::new(values), &expected, 0.0, 1.0);
    assert_eq!(list(indices), [2, 0, 1, 3, 0, 3, 2, 1]);
    common::same::<B, _>("backend", &Array::new(all_of_backend(u().val())), &expected, 0.0, 1.0);
    let jitted = jit(|x: Array<Traced, 2>| {
        let (values, indices) = all(x.val());
        ([values, all_of_backend(x.val())].map(Array::<_, 2>::new), Array::<_, 2, Int>::new(indices))
    });
    let (found, indices) = jitted.call::<B>(u());
    assert_eq!(list(indices.val()), [2, 0, 1, 3, 0, 3, 2, 1]);
    let mapped = vmap(|x: Array<Traced, 1>| {
        let (values, indices) = top_k(x.val(), 0, 4);
        (Array::<_, 1>::new(values), Array::<_, 1, Int>::new(indices))
    });
    let (rows, indices) = mapped.call::<B, _>(u());
    assert_eq!(list(indices.val()), [2, 0, 1, 3, 0, 3, 2, 1]);
    let [jitted, of_backend] = found;
    for (what, found) in [("jit", jitted), ("backend, jit", of_backend), ("vmap", rows)] {
        common::same::<B, _>(what, &found, &expected, 0.0, 1.0);
    }
    let slopes = array([[2.0, 3.0, 1.0, 4.0], [5.0, 8.0, 7.0, 6.0]]);
    let jitted = jit(|x: Array<Traced, 2>| [grad(&x, all_weighted), grad(&x, all_of_backend_weighted)]);
    let [jitted, of_backend] = jitted.call::<B>(u());
    for (what, found) in [
        ("grad", grad(&u(), all_weighted)),
        ("grad, backend", grad(&u(), all_of_backend_weighted)),
        ("jit(grad)", jitted),
        ("jit(grad), backend", of_backend),
    ] {
        common::same::<B, _>(what, &found, &slopes, 0.0, 1.0);
    }
}

#[test]
fn as_many_as_there_are_flex() {
    as_many_as_there_are::<Flex>();
}

#[test]
fn as_many_as_there_are_candle() {
    as_many_as_there_are::<Candle>();
}

fn copied<B: Backend>(x: Array<B, 2>, values: Array<B, 2>, indices: Array<B, 1, Int>) -> Array<B, 2> {
    Array::new(index_copy(x.val(), 0, indices.val(), values.val()))
}

fn replaced_slices_match_jax<B: Backend>() {
    let x = || array::<B, 4, 2>([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]);
    let values = || array::<B, 3, 2>([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]);
    let indices = || ints::<B, 3>([1, 3, 1]);
    let expected = array::<B, 4, 2>([[0.0, 1.0], [50.0, 60.0], [4.0, 5.0], [30.0, 40.0]]);
    common::same::<B, _>("eager", &copied(x(), values(), indices()), &expected, 0.0, 1.0);
    let jitted = jit(|(x, values, indices): (Array<Traced, 2>, Array<Traced, 2>, Array<Traced, 1, Int>)| {
        copied(x, values, indices)
    });
    common::same::<B, _>("jit", &jitted.call::<B>((x(), values(), indices())), &expected, 0.0, 1.0);
    let lifted = indices();
    let f = move |(x, values): (Array<Autodiff<B>, 2>, Array<Autodiff<B>, 2>)| {
        copied(x, values, from_inner::<B, _>(lifted))
    };
    let (_, pullback) = vjp(&(x(), values()), f);
    let grads = pullback(array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]));
    let of_x = array([[1.0, 2.0], [0.0, 0.0], [5.0, 6.0], [0.0, 0.0]]);
    let of_values = array([[0.0, 0.0], [7.0, 8.0], [3.0, 4.0]]);
    common::same::<B, _>("grad", &grads, &(of_x, of_values), 0.0, 1.0);
    // Infinities outside the replaced slices, and in the slices that are replaced, do not spread.
    let special = array::<B, 4, 2>([[INF, NAN], [NAN, NAN], [INF, -INF], [1.0, 1.0]]);
    let values = array::<B, 3, 2>([[NAN, INF], [30.0, 40.0], [INF, 60.0]]);
    let found = copied(special, values, indices()).val().into_data().iter::<f32>().collect::<Vec<_>>();
    assert_eq!(format!("{found:?}"), "[inf, NaN, inf, 60.0, inf, -inf, 30.0, 40.0]");
}

#[test]
fn replaced_slices_match_jax_flex() {
    replaced_slices_match_jax::<Flex>();
}

#[test]
fn replaced_slices_match_jax_candle() {
    replaced_slices_match_jax::<Candle>();
}

#[test]
fn examples_have_indices_of_their_own() {
    let f = |(x, i): (Array<Traced, 1>, Array<Traced, 1, Int>)| {
        let hot = one_hot::<Traced, 1, 2>(i.val(), 3);
        let order = argsort_int(i.val(), 0, true);
        (
            Array::<_, 1>::new(index_copy(x.val(), 0, i.val(), x.val().narrow(0, 0, 2) * 10.0)),
            Array::<_, 2>::new(hot),
            Array::<_, 1, Int>::new(order),
        )
    };
    let x = array::<B, 2, 3>([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
    let i = Array::<B, 2, Int>::new(Tensor::from_ints([[2, 0], [1, 1]], &Default::default()));
    let (copied, hot, order) = vmap(f).call((x, i));
    common::same::<B, _>("copied", &copied, &array([[20.0, 2.0, 10.0], [4.0, 50.0, 6.0]]), 0.0, 1.0);
    let hot: Vec<f32> = hot.val().into_data().iter::<f32>().collect();
    assert_eq!(hot, [0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0]);
    assert_eq!(list(order.val()), [0, 1, 0, 1]);
    let out_of_range = one_hot::<B, 1, 2>(ints([0, 2, 5, -1]).val(), 3).into_data().iter::<f32>().collect::<Vec<_>>();
    assert_eq!(out_of_range, [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
}
