//! Updates of elements and slices at indices (set, add, multiply, min, max) in every mode, against `x.at[indices]` of JAX.

use crate::common;
use burn::tensor::{IndexingUpdateOp as Update, Int, Tensor, module::embedding};
use grove_backend::{
    Autodiff, Backend, Candle, Flex,
    ops::{scatter, select_assign},
};
use grove_compile::{Traced, jit, jvp, vmap};
use grove_transform::{from_inner, grad, vjp};
use grove_tree::Array;
use std::panic::{AssertUnwindSafe, catch_unwind};

const UPDATES: [Update; 5] = [Update::Assign, Update::Add, Update::Mul, Update::Min, Update::Max];

fn array<B: Backend, const M: usize, const N: usize>(values: [[f32; N]; M]) -> Array<B, 2> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

fn x<B: Backend>() -> Array<B, 2> {
    array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
}

fn values<B: Backend>() -> Array<B, 2> {
    array([[2.0, -3.0, 5.0, 0.5], [7.0, -1.0, 2.0, 3.0]])
}

fn indices<B: Backend>() -> Array<B, 2, Int> {
    Array::new(Tensor::from_ints([[2, 0, 2, 2], [1, 1, 0, 1]], &Default::default()))
}

type Arguments<B> = (Array<B, 2>, Array<B, 2, Int>, Array<B, 2>);

fn scattered<B: Backend>(update: Update, (x, indices, values): Arguments<B>) -> Array<B, 2> {
    Array::new(scatter(x.val(), 1, indices.val(), values.val(), update))
}

fn elements_match_jax<B: Backend>() {
    let expected = [
        [[-3.0, -2.0, 0.5], [2.0, 3.0, -6.0]],
        [[-2.0, -2.0, 10.5], [6.0, 14.0, -6.0]],
        [[-3.0, -2.0, 15.0], [8.0, -105.0, -6.0]],
        [[-3.0, -2.0, 0.5], [2.0, -1.0, -6.0]],
        [[1.0, -2.0, 5.0], [4.0, 7.0, -6.0]],
    ];
    for (update, expected) in UPDATES.into_iter().zip(expected) {
        let (args, expected) = ((x::<B>(), indices(), values()), array(expected));
        common::same::<B, _>("eager", &scattered(update, args.clone()), &expected, 0.0, 1.0);
        let jitted = jit(move |args: Arguments<Traced>| scattered(update, args));
        common::same::<B, _>("jit", &jitted.call::<B>(args), &expected, 0.0, 1.0);
    }
}

#[test]
fn elements_match_jax_flex() {
    elements_match_jax::<Flex>();
}

#[test]
fn elements_match_jax_candle() {
    elements_match_jax::<Candle>();
}

fn slices<B: Backend>(update: Update) -> (Tensor<B, 2>, Tensor<B, 2, Int>) {
    let device = Default::default();
    let indices = || Tensor::from_ints([2, 0, 2], &device);
    let values: Tensor<B, 2> = array([[2.0, -3.0, 5.0], [7.0, -1.0, 2.0]]).val();
    let of_ints = select_assign(x::<B>().val().int(), 1, indices(), values.clone().int(), update);
    (select_assign(x().val(), 1, indices(), values, update), of_ints)
}

#[test]
fn slices_of_floats_and_integers_match_jax() {
    let expected = [
        [-3.0, -2.0, 5.0, -1.0, 5.0, 2.0],
        [-2.0, -2.0, 10.0, 3.0, 5.0, 3.0],
        [-3.0, -2.0, 30.0, -4.0, 5.0, -84.0],
        [-3.0, -2.0, 2.0, -1.0, 5.0, -6.0],
        [1.0, -2.0, 5.0, 4.0, 5.0, 7.0],
    ];
    for (update, expected) in UPDATES.into_iter().zip(expected) {
        let (floats, ints) = slices::<Flex>(update);
        assert_eq!(floats.into_data().iter::<f32>().collect::<Vec<_>>(), expected, "{update:?}");
        assert_eq!(ints.into_data().iter::<f32>().collect::<Vec<_>>(), expected, "{update:?}");
    }
}

/// Gradients of the array and of the values. For set, min and max the expected values are from JAX; for products they are x y'
/// and x' y for each factor.
#[test]
fn gradients_flow_to_the_kept_elements() {
    let expected: [(Update, [[_; 3]; 2], [[_; 4]; 2]); 4] = [
        (Update::Assign, [[0.0, 2.0, 0.0], [0.0, 0.0, 6.0]], [[0.0, 1.0, 0.0, 3.0], [0.0, 0.0, 4.0, 5.0]]),
        (Update::Min, [[0.0, 2.0, 0.0], [0.0, 0.0, 6.0]], [[0.0, 1.0, 0.0, 3.0], [0.0, 5.0, 4.0, 0.0]]),
        (Update::Max, [[1.0, 2.0, 0.0], [4.0, 0.0, 6.0]], [[0.0, 0.0, 3.0, 0.0], [5.0, 0.0, 0.0, 0.0]]),
        (Update::Mul, [[-3.0, 2.0, 15.0], [8.0, -105.0, 6.0]], [[22.5, 1.0, 9.0, 90.0], [-75.0, 525.0, 16.0, -175.0]]),
    ];
    for (update, of_x, of_values) in expected {
        let eager = |(x, values): (Array<Autodiff<Flex>, 2>, Array<Autodiff<Flex>, 2>)| {
            scattered(update, (x, from_inner::<Flex, _>(indices()), values))
        };
        let weights = || array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]);
        let expected = (array(of_x), array(of_values));
        let grads = vjp(&(x(), values()), eager).1(weights());
        common::same::<Flex, _>("grad", &grads, &expected, 1e-6, 1.0);
        // Forward mode gives the same: the sum over all directions.
        let traced = move |(x, values): (Array<Traced, 2>, Array<Traced, 2>)| scattered(update, (x, indices(), values));
        let tangent = jvp(traced, &(x::<Flex>(), values()), &(x(), values())).1;
        let along: f32 = (tangent.val() * weights().val()).sum().into_scalar();
        let of = |grad: &Array<Flex, 2>, x: Array<Flex, 2>| -> f32 { (grad.val() * x.val()).sum().into_scalar() };
        assert!((along - of(&expected.0, x()) - of(&expected.1, values())).abs() < 1e-3, "{update:?}: {along}");
    }
}

#[test]
fn examples_have_elements_of_their_own() {
    for update in UPDATES {
        let f = move |(x, i, v): (Array<Traced, 1>, Array<Traced, 1, Int>, Array<Traced, 1>)| {
            let slices = select_assign(x.val(), 0, i.val(), v.val(), update);
            (Array::<_, 1>::new(scatter(x.val(), 0, i.val(), v.val(), update)), Array::<_, 1>::new(slices))
        };
        let (elements, slices) = vmap(f).call::<Flex, _>((x(), indices(), values()));
        let expected = scattered(update, (x::<Flex>(), indices(), values()));
        common::same::<Flex, _>("elements", &elements, &expected, 0.0, 1.0);
        common::same::<Flex, _>("slices", &slices, &expected, 0.0, 1.0);
    }
}

type Rows<B> = (Array<B, 1>, Array<B, 1, Int>);

fn selected<B: Backend>(x: Tensor<B, 1>, indices: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    x.select(0, indices)
}

/// Looks up rows of one element.
fn embedded<B: Backend>(x: Tensor<B, 1>, indices: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    embedding(x.reshape([2, 1]), indices.reshape([1, 2])).reshape([2])
}

fn lifted(indices: &Array<Traced, 1, Int>) -> Tensor<Autodiff<Traced>, 1, Int> {
    Tensor::from_inner(indices.val())
}

/// Replaces elements by their tenfold.
fn updated(update: Update, (x, indices): Rows<Traced>) -> Array<Traced, 1> {
    Array::new(select_assign(x.val(), 0, indices.val(), x.val() * 10.0, update))
}

/// An index out of range of an example does not refer to another example.
fn examples_refuse_indices_out_of_range<B: Backend>() {
    type Case = (&'static str, fn(Rows<Traced>) -> Array<Traced, 1>, [f32; 4]);
    let cases: [Case; 7] = [
        ("select", |(x, i)| Array::new(selected(x.val(), i.val())), [1.0, 2.0, 6.0, 6.0]),
        (
            "gradient of select",
            |(x, i)| grad(&x, |x: Array<Autodiff<Traced>, 1>| selected(x.val(), lifted(&i)).sum()),
            [1.0, 1.0, 0.0, 2.0],
        ),
        ("embedding", |(x, i)| Array::new(embedded(x.val(), i.val())), [1.0, 2.0, 6.0, 6.0]),
        (
            "gradient of embedding",
            |(x, i)| grad(&x, |x: Array<Autodiff<Traced>, 1>| embedded(x.val(), lifted(&i)).sum()),
            [1.0, 1.0, 0.0, 2.0],
        ),
        ("set", |args| updated(Update::Assign, args), [10.0, 20.0, 4.0, 60.0]),
        ("add", |args| updated(Update::Add, args), [11.0, 22.0, 4.0, 106.0]),
        ("multiply", |args| updated(Update::Mul, args), [10.0, 40.0, 4.0, 14_400.0]),
    ];
    for (name, f, expected) in cases {
        let call = |indices: [[i32; 2]; 2]| {
            let indices = Array::<B, 2, Int>::new(Tensor::from_ints(indices, &Default::default()));
            let found = vmap(f).call::<B, _>((array::<B, 2, 2>([[1.0, 2.0], [4.0, 6.0]]), indices));
            found.val().into_data().iter::<f32>().collect::<Vec<_>>()
        };
        assert_eq!(call([[0, 1], [1, 1]]), expected, "{name}");
        for indices in [[[0, 2], [1, 0]], [[0, 1], [-1, 0]]] {
            assert!(catch_unwind(AssertUnwindSafe(|| call(indices))).is_err(), "{name} at {indices:?}");
        }
    }
}

#[test]
fn examples_refuse_indices_out_of_range_flex() {
    examples_refuse_indices_out_of_range::<Flex>();
}

#[test]
fn examples_refuse_indices_out_of_range_candle() {
    examples_refuse_indices_out_of_range::<Candle>();
}

/// Signs of zero are preserved, NaN counts as the extremum, and neither NaN nor infinity spreads.
#[test]
fn special_values_keep_their_positions() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    let x = || array::<Flex, 2, 3>([[nan, inf, 1.0], [0.0, -inf, 2.0]]);
    let values = || array::<Flex, 2, 4>([[-0.0, 1.0, nan, 3.0], [nan, 1.0, -0.0, inf]]);
    let found = |update| {
        let y = scattered(update, (x(), indices(), values())).val();
        format!("{:?}", y.into_data().iter::<f32>().collect::<Vec<_>>())
    };
    assert_eq!(found(Update::Assign), "[1.0, inf, 3.0, -0.0, inf, 2.0]");
    assert_eq!(found(Update::Max), "[NaN, inf, NaN, 0.0, NaN, 2.0]");
    assert_eq!(found(Update::Min), "[NaN, inf, NaN, 0.0, NaN, 2.0]");
}
