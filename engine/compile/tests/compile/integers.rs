//! Integers divided by zero in traced functions, as in JAX.

use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{Backend, Candle, Flex};
use grove_compile::{Traced, cond, jit, scan_with, vmap};
use grove_transform::Scan;
use grove_tree::Array;

fn ints<B: Backend, const N: usize>(values: [i32; N], dtype: DType) -> Array<B, 1, Int> {
    Array::new(Tensor::from_data(TensorData::from(values), (&Default::default(), dtype)))
}

fn list<B: Backend>(x: &Array<B, 1, Int>) -> Vec<i64> {
    x.val().into_data().iter::<i64>().collect()
}

type Pair<B> = (Array<B, 1, Int>, Array<B, 1, Int>);

fn divided<B: Backend>((a, b): Pair<B>) -> Pair<B> {
    (Array::new(a.val() / b.val()), Array::new(a.val() % b.val()))
}

/// The expected values are from `lax.div` and `jnp.remainder` of JAX.
fn are_those_of_jax<B: Backend>(dtype: DType) {
    let (a, b) = (|| ints::<B, 5>([7, -7, 0, 9, 5], dtype), || ints::<B, 5>([0, 0, 0, 2, -5], dtype));
    let (quotient, rest) = jit(divided).call::<B>((a(), b()));
    assert_eq!((list(&quotient), list(&rest)), (vec![-1, -1, -1, 4, -1], vec![0, 0, 0, 1, 0]), "{dtype:?}");
    // One divisor for all elements.
    let (quotient, rest) = jit(divided).call::<B>((a(), ints([0], dtype)));
    assert_eq!((list(&quotient), list(&rest)), (vec![-1; 5], vec![0; 5]), "{dtype:?}");
    let by_number =
        jit(|x: Array<Traced, 1, Int>| (Array::<_, 1, Int>::new(x.val() / 0), Array::<_, 1, Int>::new(x.val() % 0)));
    let (quotient, rest) = by_number.call::<B>(a());
    assert_eq!((list(&quotient), list(&rest)), (vec![-1; 5], vec![0; 5]), "{dtype:?}");
}

#[test]
fn by_zero_are_those_of_jax_flex() {
    are_those_of_jax::<Flex>(DType::I64);
    are_those_of_jax::<Flex>(DType::I32);
}

#[test]
fn by_zero_are_those_of_jax_candle() {
    are_those_of_jax::<Candle>(DType::I64);
}

/// An unsigned quotient by zero has all bits set.
#[test]
fn unsigned_quotients_are_the_highest_number() {
    let (quotient, rest) = jit(divided).call::<Flex>((ints([7], DType::U32), ints([0], DType::U32)));
    assert_eq!((list(&quotient), list(&rest)), (vec![u32::MAX.into()], vec![0]));
}

/// A planned loop divides like its steps.
#[test]
fn loops_divide_as_in_jax() {
    let step = |(): (), carry: Pair<Traced>, (): ()| (divided(carry), ());
    let looped = jit(move |args: Pair<Traced>| scan_with(Scan::new().length(2), &(), step, args, ()).0);
    let (a, b) = looped.call::<Flex>((ints([7, 9], DType::I64), ints([0, 2], DType::I64)));
    // 7 / 0 = -1 and 7 % 0 = 0, then -1 / 0; 9 / 2 = 4 and 9 % 2 = 1, then 4 / 1.
    assert_eq!((list(&a), list(&b)), (vec![-1, 4], vec![0, 0]));
}

/// `vmap` computes both branches, one of which divides by zero for some examples.
#[test]
fn a_guarded_division_is_mapped() {
    let f = |(a, b): Pair<Traced>| {
        let is_zero: Tensor<Traced, 1, Bool> = b.val().equal_elem(0);
        cond(is_zero, |(a, _): Pair<Traced>| a, |(a, b): Pair<Traced>| Array::new(a.val() / b.val()), (a, b))
    };
    let rows = |values: [[i32; 1]; 3]| Array::<Flex, 2, Int>::new(Tensor::from_ints(values, &Default::default()));
    let found = vmap(f).call::<Flex, _>((rows([[7], [8], [9]]), rows([[0], [2], [3]])));
    assert_eq!(found.val().into_data().iter::<i64>().collect::<Vec<_>>(), [7, 4, 3]);
}
