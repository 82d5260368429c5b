//! Integers divided by every kind of divisor, as in JAX.

use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend, Candle, Flex, ops};
use grove_compile::{Traced, cond, jit, scan_with, vmap};
use grove_transform::Scan;
use grove_tree::Array;

fn ints<B: Backend>(values: &[i64], dtype: DType) -> Array<B, 1, Int> {
    Array::new(Tensor::from_data(TensorData::from(values), (&Default::default(), dtype)))
}

fn list<B: Backend>(x: &Array<B, 1, Int>) -> Vec<i64> {
    x.val().into_data().iter::<i64>().collect()
}

type Pair<B> = (Array<B, 1, Int>, Array<B, 1, Int>);

fn divided<B: Backend>((a, b): Pair<B>) -> Pair<B> {
    (Array::new(a.val() / b.val()), Array::new(a.val() % b.val()))
}

/// Dividends, divisors, and the results of `lax.div` and `jnp.remainder` of JAX, of a signed dtype.
fn signed(lowest: i64) -> [Vec<i64>; 4] {
    let highest = -(lowest + 1);
    [
        vec![7, -7, 0, 9, 5, -9, 9, lowest, lowest, highest - 1, -5],
        vec![0, 0, 0, 2, -5, 4, -4, -1, 0, highest, highest],
        vec![-1, -1, -1, 4, -1, -2, -2, lowest, -1, 0, 0],
        vec![0, 0, 0, 1, 0, 3, -3, 0, 0, highest - 1, highest - 5],
    ]
}

/// As [`signed`], of an unsigned dtype.
fn unsigned(highest: i64) -> [Vec<i64>; 4] {
    [
        vec![7, 0, highest, highest, highest - 1],
        vec![0, 0, 0, 3, highest],
        vec![highest, highest, highest, highest / 3, 0],
        vec![0, 0, 0, 0, highest - 1],
    ]
}

/// Checks jitted functions, functions on the tape, and the functions of `ops`.
fn match_jax<B: Backend>(dtype: DType, [a, b, quotients, rests]: [Vec<i64>; 4]) {
    let (x, y) = (|| ints::<B>(&a, dtype), || ints::<B>(&b, dtype));
    let check = |mode: &str, (quotient, rest): Pair<B>| {
        assert_eq!((list(&quotient), list(&rest)), (quotients.clone(), rests.clone()), "{dtype:?}, {mode}");
    };
    check("jit", jit(divided).call::<B>((x(), y())));
    check("ops", (ops::int_div(x().val(), y().val()).into(), ops::int_remainder(x().val(), y().val()).into()));
    let (on_tape, number) = (|x: Array<B, 1, Int>| Tensor::<Autodiff<B>, 1, Int>::from_inner(x.val()), |i: usize| b[i]);
    let [quotient, rest] = [on_tape(x()) / on_tape(y()), on_tape(x()) % on_tape(y())];
    check("tape", (quotient.inner().into(), rest.inner().into()));
    for (i, quotient) in quotients.iter().enumerate() {
        let number = number(i);
        let by_number = jit(move |x: Array<Traced, 1, Int>| -> Pair<Traced> {
            (Array::new(x.val() / number), Array::new(x.val() % number))
        });
        let found = by_number.call::<B>(ints(&a[i..=i], dtype));
        assert_eq!(
            (list(&found.0), list(&found.1)),
            (vec![*quotient], vec![rests[i]]),
            "{dtype:?}, {} by {number}",
            a[i]
        );
        // One divisor for all elements.
        let found = jit(divided).call::<B>((ints(&[a[i]; 3], dtype), ints(&[number], dtype)));
        assert_eq!((list(&found.0), list(&found.1)), (vec![*quotient; 3], vec![rests[i]; 3]), "{dtype:?}");
    }
}

#[test]
fn quotients_and_remainders_match_jax_flex() {
    match_jax::<Flex>(DType::I64, signed(i64::MIN));
    match_jax::<Flex>(DType::I32, signed(i32::MIN.into()));
    match_jax::<Flex>(DType::I16, signed(i16::MIN.into()));
    match_jax::<Flex>(DType::I8, signed(i8::MIN.into()));
    match_jax::<Flex>(DType::U32, unsigned(u32::MAX.into()));
    match_jax::<Flex>(DType::U16, unsigned(u16::MAX.into()));
    match_jax::<Flex>(DType::U8, unsigned(u8::MAX.into()));
}

#[test]
fn quotients_and_remainders_match_jax_candle() {
    match_jax::<Candle>(DType::I64, signed(i64::MIN));
    match_jax::<Candle>(DType::U32, unsigned(u32::MAX.into()));
    match_jax::<Candle>(DType::U8, unsigned(u8::MAX.into()));
}

#[test]
fn unsigned_quotients_of_64_bits() {
    let (quotient, rest) = jit(divided).call::<Flex>((ints(&[7, 9], DType::U64), ints(&[0, 2], DType::U64)));
    let values = |x: &Array<Flex, 1, Int>| x.val().into_data().iter::<u64>().collect::<Vec<_>>();
    assert_eq!((values(&quotient), values(&rest)), (vec![u64::MAX, 4], vec![0, 1]));
}

/// A planned loop divides like its steps.
#[test]
fn loops_divide_as_in_jax() {
    let step = |(): (), carry: Pair<Traced>, (): ()| (divided(carry), ());
    let looped = jit(move |args: Pair<Traced>| scan_with(Scan::new().length(1), &(), step, args, ()).0);
    for (dtype, lowest) in [(DType::I64, i64::MIN), (DType::I32, i32::MIN.into())] {
        let [a, b, quotients, rests] = signed(lowest);
        let (quotient, rest) = looped.call::<Flex>((ints(&a, dtype), ints(&b, dtype)));
        assert_eq!((list(&quotient), list(&rest)), (quotients, rests), "{dtype:?}");
    }
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
