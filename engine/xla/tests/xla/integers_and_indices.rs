//! Integers divided by zero, and updates at indices, some of them out of range, through XLA.

use crate::graphs::{arrays, check, run, shared};
use burn::tensor::{DType, IndexingUpdateOp as Update, Int, Tensor};
use grove_backend::{
    Flex,
    ops::{scatter, select_assign},
};
use grove_compile::{Traced, trace};
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
