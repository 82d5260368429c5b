//! Integers divided by zero, and reads and updates at indices, some of them out of range, through XLA.

use crate::graphs::{arrays, check, run, shared};
use burn::tensor::{DType, IndexingUpdateOp as Update, Int, Tensor, module::embedding};
use grove_backend::{
    Autodiff, Backend, Flex,
    ops::{scatter, select_assign},
};
use grove_compile::{Traced, trace, vmap};
use grove_transform::grad;
use grove_tree::Array;

type Ints<B> = Array<B, 1, Int>;

fn ints<const N: usize>(values: [i32; N]) -> Ints<Flex> {
    Array::new(Tensor::from_ints(values, &Default::default()))
}

/// Compares with jitted functions on flex, which are tested against JAX.
#[test]
fn integers_are_divided_as_on_flex() {
    let f = |(a, b): (Ints<Traced>, Ints<Traced>)| {
        let by_numbers = [Ints::new(a.val() / 0), Ints::new(a.val() % 0), Ints::new(a.val() % -3)];
        (Ints::new(a.val() / b.val()), Ints::new(a.val() % b.val()), by_numbers)
    };
    for (dtype, lowest) in [(DType::I32, i32::MIN.into()), (DType::I64, i64::MIN)] {
        let ints = |values: [i64; 8]| Ints::<Flex>::new(Tensor::from_data(values, (&Default::default(), dtype)));
        let args = (ints([7, -7, 0, 9, 5, -9, lowest, lowest]), ints([0, 0, 0, 2, -5, 4, -1, 0]));
        check(&format!("{dtype:?} divided"), f, &args, 0.0);
    }
}

/// An array, indices, and values.
type Updated<B> = (Array<B, 1>, Ints<B>, Array<B, 1>);

fn updated(update: Update) -> impl Fn(Updated<Traced>) -> [Array<Traced, 1>; 2] {
    move |(x, i, values)| {
        let slices = select_assign(x.val(), 0, i.val(), values.val(), update);
        [slices, scatter(x.val(), 0, i.val(), values.val(), update)].map(Array::new)
    }
}

/// As in JAX, updates out of range are dropped.
#[test]
fn updates_out_of_range_are_dropped() {
    let Some(client) = shared() else { return };
    let floats = |values: [f32; 4]| Array::<Flex, 1>::new(Tensor::from_floats(values, &Default::default()));
    let args = (floats([1.0, 2.0, 3.0, 4.0]), ints([4, 1, 1, 9]), floats([10.0, 20.0, 5.0, 7.0]));
    let expected = [
        (Update::Assign, [1.0, 5.0, 3.0, 4.0]),
        (Update::Add, [1.0, 27.0, 3.0, 4.0]),
        (Update::Mul, [1.0, 200.0, 3.0, 4.0]),
        (Update::Min, [1.0, 2.0, 3.0, 4.0]),
        (Update::Max, [1.0, 20.0, 3.0, 4.0]),
    ];
    for (update, expected) in expected {
        for found in run(client, &trace(updated(update), &args), &arrays(&args), &[]) {
            assert_eq!(found.iter::<f32>().collect::<Vec<_>>(), expected, "{update:?}");
        }
    }
}

type Rows<B> = (Array<B, 1>, Ints<B>);

fn selected<B: Backend>(x: Tensor<B, 1>, indices: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    x.select(0, indices)
}

/// Looks up rows of one element.
fn embedded<B: Backend>(x: Tensor<B, 1>, indices: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    embedding(x.reshape([2, 1]), indices.reshape([1, 2])).reshape([2])
}

fn lifted(indices: &Ints<Traced>) -> Tensor<Autodiff<Traced>, 1, Int> {
    Tensor::from_inner(indices.val())
}

/// Replaces elements by their tenfold.
fn tenfold(update: Update, (x, indices): Rows<Traced>) -> Array<Traced, 1> {
    Array::new(select_assign(x.val(), 0, indices.val(), x.val() * 10.0, update))
}

/// As without `vmap`, reads are clamped and updates are dropped, and no index refers to another example.
#[test]
fn mapped_indices_out_of_range() {
    type Case = (&'static str, fn(Rows<Traced>) -> Array<Traced, 1>, [f32; 4]);
    let Some(client) = shared() else { return };
    let x = Array::<Flex, 2>::new(Tensor::from_floats([[1.0, 2.0], [4.0, 6.0]], &Default::default()));
    let indices = Array::<Flex, 2, Int>::new(Tensor::from_ints([[0, 2], [-1, 1]], &Default::default()));
    let args = (x, indices);
    let cases: [Case; 8] = [
        ("select", |(x, i)| Array::new(selected(x.val(), i.val())), [1.0, 2.0, 4.0, 6.0]),
        (
            "gradient of select",
            |(x, i)| grad(&x, |x: Array<Autodiff<Traced>, 1>| selected(x.val(), lifted(&i)).sum()),
            [1.0, 0.0, 0.0, 1.0],
        ),
        ("embedding", |(x, i)| Array::new(embedded(x.val(), i.val())), [1.0, 2.0, 4.0, 6.0]),
        (
            "gradient of embedding",
            |(x, i)| grad(&x, |x: Array<Autodiff<Traced>, 1>| embedded(x.val(), lifted(&i)).sum()),
            [1.0, 0.0, 0.0, 1.0],
        ),
        ("set", |args| tenfold(Update::Assign, args), [10.0, 2.0, 4.0, 60.0]),
        ("add", |args| tenfold(Update::Add, args), [11.0, 2.0, 4.0, 66.0]),
        ("multiply", |args| tenfold(Update::Mul, args), [10.0, 2.0, 4.0, 360.0]),
        ("max", |args| tenfold(Update::Max, args), [10.0, 2.0, 4.0, 60.0]),
    ];
    for (name, f, expected) in cases {
        let mapped = |(x, i): (Array<Traced, 2>, Array<Traced, 2, Int>)| vmap(f).call::<Traced, _>((x, i));
        let found = run(client, &trace(mapped, &args), &arrays(&args), &[]).remove(0);
        assert_eq!(found.iter::<f32>().collect::<Vec<_>>(), expected, "{name}");
    }
}
