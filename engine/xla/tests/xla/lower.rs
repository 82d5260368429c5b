//! Graphs lowered to StableHLO and compiled by OpenXLA for CPUs give the results of Burn's backends.

use crate::graphs::{check, run, shared};
use crate::programs;
use crate::programs::Code;
use burn::tensor::{DType, Int, IntDType, Tensor, TensorData, s};
use grove_backend::Flex;
use grove_compile::{Traced, trace};
use grove_tree::{Array, Key};
use proptest::{prelude::*, test_runner::RngSeed};

type B = Flex;

type X = Tensor<Traced, 2>;

/// A test case.
type F<T> = fn(T) -> T;

/// Checks a function of a matrix `[3, 4]`.
fn of_matrix(what: &str, f: impl FnOnce(X) -> X) {
    let x = Array::<B, 2>::new(Key::new(7).normal([3, 4], &Default::default()));
    check(what, |x: Array<Traced, 2>| Array::<_, 2>::new(f(x.val())), &x, 1e-5);
}

#[test]
fn functions_of_elements() {
    let cases: &[(&str, F<X>)] = &[
        ("abs", |x| x.abs()),
        ("exp", |x| x.exp()),
        ("log", |x| x.log()),
        ("log1p", |x| x.log1p()),
        ("sqrt", |x| x.sqrt()),
        ("recip", |x| x.recip()),
        ("erf", |x| x.erf()),
        ("sin", |x| x.sin()),
        ("cos", |x| x.cos()),
        ("tan", |x| x.tan()),
        ("sinh", |x| x.sinh()),
        ("cosh", |x| x.cosh()),
        ("tanh", |x| x.tanh()),
        ("asin", |x| (x * 0.3).asin()),
        ("acos", |x| (x * 0.3).acos()),
        ("atan", |x| x.atan()),
        ("asinh", |x| x.asinh()),
        ("acosh", |x| (x.abs() + 1.0).acosh()),
        ("atanh", |x| (x * 0.3).atanh()),
        ("round", |x| (x * 4.0).round()),
        ("round of halves", |x| (x * 2.0).floor() * 0.5 + (x_halves())),
        ("floor", |x| (x * 4.0).floor()),
        ("ceil", |x| (x * 4.0).ceil()),
        ("trunc", |x| (x * 4.0).trunc()),
        ("is_nan", |x| x.log().is_nan().float()),
        ("is_inf", |x| (x.zeros_like() / x).recip().is_inf().float()),
        ("remainder", |x| (x.clone() * 7.0).remainder(x.abs() + 0.5)),
        ("negative remainder", |x| (x.clone() * 7.0).remainder(x.abs().neg() - 0.5)),
        ("power", |x| x.clone().abs().powf(x)),
        ("power of a number", |x| x.powi_scalar(3)),
        ("negative power", |x| x.powi_scalar(-2)),
        ("square root by power", |x| x.abs().powf_scalar(0.5)),
        ("atan2", |x| x.clone().atan2(x.flip([0]))),
        ("comparisons", |x| {
            let y = x.clone().flip([1]);
            let a = x.clone().greater(y.clone()).float() + x.clone().greater_equal(y.clone()).float() * 2.0;
            a + x.clone().lower(y.clone()).float() * 4.0
                + x.clone().lower_equal(y.clone()).float() * 8.0
                + x.equal(y).float() * 16.0
        }),
        ("clamp", |x| x.clamp(-0.5, 0.25)),
        ("where", |x| x.clone().mask_where(x.clone().greater_elem(0.1), x.flip([0]))),
        ("fill", |x| x.clone().mask_fill(x.greater_elem(0.1), -7.0)),
        ("conversions", |x| (x.clone() * 10.0).int().float() + x.cast(DType::F16).cast(DType::F32)),
        ("not", |x| x.greater_elem(0.0).bool_not().float()),
    ];
    for (what, f) in cases {
        of_matrix(what, f);
    }
}

/// Halves, which round to the even neighbour.
fn x_halves() -> X {
    Tensor::<Traced, 1>::from_floats(
        [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 4.5, 0.0, 1.0, 2.0, 3.0],
        &Default::default(),
    )
    .round()
    .reshape([3, 4])
}

#[test]
fn reductions_and_positions() {
    let cases: &[(&str, F<X>)] = &[
        ("sum", |x| x.sum().reshape([1, 1])),
        ("sum of rows", |x| x.sum_dim(1)),
        ("mean", |x| x.mean_dim(0)),
        ("mean of all", |x| x.mean().reshape([1, 1])),
        ("product", |x| x.prod_dim(1)),
        ("max", |x| x.max_dim(1)),
        ("min", |x| x.min_dim(0)),
        ("max of sizes", |x| x.max_abs_dim(1)),
        ("max of all", |x| x.max().reshape([1, 1])),
        ("argmax", |x| x.argmax(1).float()),
        ("argmin", |x| x.argmin(0).float()),
        ("first of equals", |x| x.clamp(-0.1, 0.1).argmax(1).float()),
        ("top k", |x| x.topk(2, 1)),
        ("max with positions", |x| {
            let (values, positions) = x.max_dim_with_indices(1);
            values + positions.float()
        }),
        ("min with positions", |x| {
            let (values, positions) = x.min_dim_with_indices(0);
            values + positions.float()
        }),
        ("cumulative sum", |x| x.cumsum(1)),
        ("cumulative sum of columns", |x| x.cumsum(0)),
        ("cumulative product", |x| x.cumprod(1)),
        ("cumulative maximum", |x| x.cummax(1)),
        ("cumulative minimum", |x| x.cummin(0)),
    ];
    for (what, f) in cases {
        of_matrix(what, f);
    }
}

#[test]
fn movements() {
    let index = |values: &[i64]| Tensor::<Traced, 1, Int>::from_data(TensorData::from(values), &Default::default());
    let cases: &[(&str, &dyn Fn(X) -> X)] = &[
        ("reshape", &|x| x.reshape([2, 6])),
        ("transpose", &|x| x.transpose()),
        ("permute", &|x| x.reshape([3, 2, 2]).permute([2, 0, 1]).reshape([2, 6])),
        ("flip", &|x| x.flip([0, 1])),
        ("expand", &|x| x.sum_dim(0).expand([5, 4])),
        ("unfold", &|x| x.unfold::<3, _>(1, 2, 1).reshape([3, 6])),
        ("unfold in steps", &|x| x.unfold::<3, _>(0, 2, 1).reshape([4, 4])),
        ("slice", &|x| x.slice([1..3, 0..2])),
        ("slice in steps", &|x| x.slice(s![.., 0..4;2])),
        ("slice backwards", &|x| x.slice(s![0..3;-1, 0..4;-2])),
        ("empty slice", &|x| Tensor::cat(vec![x.clone().slice(s![1..1, ..]), x], 0)),
        ("update", &|x| x.clone().slice_assign([1..2, 1..3], x.slice([0..1, 0..2]))),
        ("update in steps", &|x| x.clone().slice_assign(s![0..3;2, 0..4;3], x.slice([1..3, 1..3]) * 2.0)),
        ("update backwards", &|x| x.clone().slice_assign(s![0..3;-1, 0..4;-2], x.slice([0..3, 0..2]) * 2.0)),
        ("take", &|x| x.select(1, index(&[3, 0, 0]))),
        ("take rows", &|x| x.select(0, index(&[2, 1, 1, 0]))),
        ("take add", &|x| {
            x.clone().select_assign(1, index(&[3, 0, 0]), x.slice([0..3, 0..3]), burn::tensor::IndexingUpdateOp::Add)
        }),
        ("gather", &|x| x.gather(1, index(&[3, 0, 0, 1, 2, 3]).reshape([3, 2]))),
        ("scatter", &|x| {
            x.clone().scatter(
                1,
                index(&[3, 0, 0, 1, 2, 2]).reshape([3, 2]),
                x.slice([0..3, 0..2]),
                burn::tensor::IndexingUpdateOp::Add,
            )
        }),
        ("repeat", &|x| x.repeat_dim(1, 3)),
        ("concatenate", &|x| Tensor::cat(vec![x.clone(), x.clone() * 2.0, x.slice(s![0..1, ..])], 0)),
        ("product", &|x| x.clone().matmul(x.transpose())),
        ("full", &|x| x.full_like(0.5) + x),
    ];
    for (what, f) in cases {
        of_matrix(what, f);
    }
    let x = Array::<B, 4>::new(Key::new(3).normal([2, 1, 3, 4], &Default::default()));
    let y = Array::<B, 4>::new(Key::new(4).normal([1, 3, 4, 2], &Default::default()));
    let matmul = |(x, y): (Array<Traced, 4>, Array<Traced, 4>)| Array::<_, 4>::new(x.val().matmul(y.val()));
    check("broadcast product", matmul, &(x.clone(), y.clone()), 1e-5);
    let one =
        |(x, y): (Array<Traced, 4>, Array<Traced, 4>)| Array::<_, 4>::new(x.val().matmul(y.val().slice([0..1, 0..1])));
    check("one matrix", one, &(x, y), 1e-5);
}

#[test]
fn integers_and_booleans() {
    let n = Array::<B, 2, Int>::new(Tensor::from_data(
        TensorData::from([[7_i64, -7, 3], [-1, 0, 12]]),
        (&Default::default(), DType::I64),
    ));
    type N = Tensor<Traced, 2, Int>;
    let cases: &[(&str, F<N>)] = &[
        ("arithmetic", |n| (n.clone() * 3 - 5) / 2 + n),
        ("remainder", |n| n.clone().remainder_scalar(4) + n.remainder_scalar(-4) * 100),
        ("bits", |n| n.clone().bitwise_and_scalar(6) + n.clone().bitwise_or(n.clone() * 2) + n.bitwise_xor_scalar(5)),
        ("shifts", |n| n.clone().bitwise_left_shift_scalar(2) + n.bitwise_right_shift_scalar(1)),
        ("not", |n| n.bitwise_not()),
        ("power", |n| n.powi_scalar(2)),
        ("abs", |n| n.abs()),
        ("sums", |n| n.clone().sum_dim(1) + n.clone().max_dim(1) + n.cumsum(1).min_dim(1)),
        ("positions", |n| n.argmax(1)),
        ("largest", |n| n.topk(2, 1)),
        ("clamp", |n| n.clamp(-3, 5)),
        ("booleans", |n| {
            let (a, b) = (n.clone().greater_elem(0), n.clone().lower_elem(5));
            let all = Tensor::cat(vec![a.clone().bool_and(b.clone()), a.bool_or(b)], 0).flip([0]);
            all.slice(s![0..2, ..]).int().cast(IntDType::I64) + n
        }),
    ];
    for (what, f) in cases {
        check(what, |n: Array<Traced, 2, Int>| Array::<_, 2, Int>::new(f(n.val())), &n, 0.0);
    }
}

/// As in JAX, for every order of the elements.
#[test]
fn nan_is_the_largest() {
    let Some(client) = shared() else { return };
    let nan = f32::NAN;
    let x =
        TensorData::from([[nan, 3.0, 1.0, 2.0], [2.0, nan, 5.0, -1.0], [0.5, 7.0, -3.0, nan], [-nan, 1.0, nan, 2.0]]);
    let args = Array::<B, 2>::new(Tensor::from_data(x.clone(), &Default::default()));
    let graph = trace(|x: Array<Traced, 2>| Array::<_, 2>::new(x.val().topk(3, 1)), &args);
    let found: Vec<f32> = run(client, &graph, &[x], &[])[0].iter().collect();
    let expected = [nan, 3.0, 2.0, nan, 5.0, 2.0, nan, 7.0, 0.5, nan, nan, 2.0];
    assert!(found.iter().zip(expected).all(|(a, b)| *a == b || a.is_nan() && b.is_nan()), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, rng_seed: RngSeed::Fixed(3), ..Default::default() })]

    #[test]
    fn random_programs(codes in prop::collection::vec(any::<Code>(), 1..15), seed in 0..1000_u64) {
        let args = programs::inputs::<B>(seed);
        check("program", programs::program(&codes), &args, 1e-4);
    }
}
