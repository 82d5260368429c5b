//! Passes that remove equations: constant folding and identities. Results keep every bit, except the bits of a NaN.

use crate::programs::{Code, Four, inputs, program};
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{AnyTensor, Backend, Candle, Flex};
use grove_compile::{Graph, Traced, jit, trace};
use grove_tree::{Array, Tree};
use proptest::prelude::*;

type B = Flex;

fn array<const N: usize>(values: [f32; N]) -> Array<B, 1> {
    Array::new(Tensor::from_floats(values, &Default::default()))
}

/// Values that arithmetic treats specially.
const SPECIAL: [f32; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    f32::NAN,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::MIN_POSITIVE / 8.0,
    -f32::MIN_POSITIVE / 2.0,
    f32::MAX,
    f32::MIN,
    0.1,
];

/// Returns the arguments of a program, with special values at positions chosen by a seed.
fn special(seed: u64) -> [Array<B, 2>; 4] {
    let mut state = seed;
    inputs::<B>(seed).map(|x| {
        let shape = x.shape().to_vec();
        let mut values = x.val().into_data().to_vec::<f32>().unwrap();
        for value in &mut values {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if (state >> 60) < 6 {
                *value = SPECIAL[(state >> 33) as usize % SPECIAL.len()];
            }
        }
        Array::new(Tensor::from_data(TensorData::new(values, shape), &Default::default()))
    })
}

/// Returns the bits of a number, with one pattern for all NaNs: IEEE 754 does not specify the sign and payload of a sum of
/// several NaNs, and they depend on the order in which a kernel adds.
fn bits(x: f32) -> u32 {
    if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() }
}

/// Returns the bytes of the results.
fn bytes<A: Tree<B>>(graph: &Graph, args: &A) -> Vec<Vec<u8>> {
    let of_result = |x: AnyTensor<B>| {
        let data = x.into_data();
        match data.to_vec::<f32>() {
            Ok(values) => values.into_iter().flat_map(|x| bits(x).to_ne_bytes()).collect(),
            Err(_) => data.as_bytes().to_vec(),
        }
    };
    graph.eval::<B, _>(args).into_iter().map(of_result).collect()
}

/// Runs a program whose operations mostly have no effect, on `[4, 6]`, `[1, 6]`, `[4, 1]` and `[1, 1]`.
fn idle<T: Backend>(codes: &[Code], inputs: [Tensor<T, 2>; 4]) -> Vec<Tensor<T, 2>> {
    let device = inputs[0].device();
    let mut values: Vec<_> = inputs.to_vec();
    for &(op, a, b) in codes {
        let at = |i: u8| values[values.len() - 1 - usize::from(i) % values.len()].clone();
        let (a, b) = (at(a), at(b));
        values.push(match op % 28 {
            0 => a * 1.0,
            1 => a / 1.0,
            2 => a - 0.0,
            3 => a + 0.0,
            4 => a + -0.0,
            5 => a.neg(),
            6 => a.transpose().transpose(),
            7 => {
                let [rows, columns] = a.dims();
                a.reshape([columns, rows]).reshape([rows, columns])
            }
            8 => {
                let [rows, columns] = a.dims();
                a.slice([0..rows, 0..columns])
            }
            9 => a.cast(DType::F64).cast(DType::F32),
            10 => a.clone().mask_where(a.clone().is_nan().bool_not().bool_not(), a),
            11 => a.abs().abs(),
            12 => a.clamp(-0.5, 0.0).clamp(-0.5, 0.0),
            13 => a.flip([0]).flip([0]),
            14 => a.floor().floor(),
            15 => a.clone() * Tensor::<T, 2>::ones(a.dims(), &device),
            16 => {
                let zeros: Tensor<T, 2> = Tensor::<T, 2>::full([1, 1], -0.0, &device).expand(a.dims());
                zeros + a
            }
            17 => {
                let zero: Tensor<T, 2> = Tensor::<T, 1>::zeros([1], &device).reshape([1, 1]);
                a - zero
            }
            18 => a.flip([1]),
            19 => a.clone() + Tensor::<T, 2>::zeros(a.dims(), &device),
            20 => a.repeat_dim(0, 1) * (Tensor::<T, 2>::full([1, 1], 4.0, &device).sqrt() - 1.0),
            21 => a.swap_dims(0, 1).permute([1, 0]),
            22 => a * -1.0,
            23 => a.cast(DType::F16).cast(DType::F32),
            24 => Tensor::cat(vec![a], 1).powf_scalar(1.0),
            // Operations whose kernels might depend on strides.
            25 => a.clone().sum_dim(1) + a,
            26 => a.tanh().exp(),
            _ => a + b,
        });
    }
    values.split_off(4)
}

fn idle_program(codes: &[Code]) -> impl Fn(Four) -> Vec<Array<Traced, 2>> + '_ {
    move |inputs| idle(codes, inputs.map(|x| x.val())).into_iter().map(Array::new).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn passes_keep_bits(codes in prop::collection::vec(any::<Code>(), 1..25), seed in any::<u64>()) {
        let args = special(seed);
        let graph = trace(program(&codes), &args);
        let expected = bytes(&graph, &args);
        let simplified = graph.clone().simplified();
        prop_assert!(simplified.equations().len() <= graph.equations().len());
        prop_assert_eq!(bytes(&simplified, &args), expected.clone(), "{}\n{}", graph, simplified);
        let folded = simplified.with_folded_constants::<B>(&Default::default());
        prop_assert_eq!(bytes(&folded, &args), expected);
    }

    #[test]
    fn operations_that_change_nothing_keep_bits(
        codes in prop::collection::vec(any::<Code>(), 1..20),
        seed in any::<u64>(),
    ) {
        let args = special(seed);
        let graph = trace(idle_program(&codes), &args);
        let expected = bytes(&graph, &args);
        let simplified = graph.clone().simplified();
        prop_assert_eq!(bytes(&simplified, &args), expected.clone(), "{}\n{}", graph, simplified);
        // A second simplification changes nothing.
        prop_assert_eq!(simplified.clone().simplified().to_string(), simplified.to_string());
        let folded = graph.clone().with_folded_constants::<B>(&Default::default());
        prop_assert_eq!(bytes(&folded, &args), expected.clone(), "{}\n{}", graph, folded);
        let both = simplified.with_folded_constants::<B>(&Default::default()).without_common_subexpressions();
        prop_assert_eq!(bytes(&both, &args), expected);
    }

    /// Jitted on a backend without chains, both passes give the bits of the eager function, except for signs of zeros: candle's
    /// product with a scalar turns -0 into 0.
    #[test]
    fn jitted_programs_keep_bits(codes in prop::collection::vec(any::<Code>(), 1..20), seed in any::<u64>()) {
        let args = special(seed).map(|x| {
            Array::<Candle, 2>::new(Tensor::from_data(x.val().into_data(), &Default::default()))
        });
        // Candle does not support f16 in every operation.
        let codes: Vec<_> = codes.into_iter().filter(|(op, ..)| op % 28 != 23).collect();
        let eager = idle(&codes, args.clone().map(|x| x.val()));
        let found = jit(idle_program(&codes)).call::<Candle>(args);
        for (found, eager) in found.iter().zip(eager) {
            let all = |x: Tensor<Candle, 2>| -> Vec<u32> {
                x.into_data().to_vec::<f32>().unwrap().into_iter().map(|x| bits(x + 0.0)).collect()
            };
            prop_assert_eq!(all(found.val()), all(eager));
        }
    }
}

/// Returns the number of equations of a function of a matrix before and after simplification.
fn equations(f: impl Fn(Tensor<Traced, 2>) -> Tensor<Traced, 2>) -> (usize, usize) {
    let x = Array::<B, 2>::new(Tensor::from_floats([[1.0, -2.0, 3.0], [4.0, 5.0, -0.0]], &Default::default()));
    let graph = trace(|x: Array<Traced, 2>| Array::<_, 2>::new(f(x.val())), &x);
    let simplified = graph.clone().simplified();
    assert_eq!(bytes(&simplified, &x), bytes(&graph, &x));
    (graph.equations().len(), simplified.equations().len())
}

#[test]
fn identities_leave_equations_out() {
    let gone = |name: &str, f: fn(Tensor<Traced, 2>) -> Tensor<Traced, 2>| {
        let (before, after) = equations(f);
        assert!(before > 0 && after == 0, "{name}: {before} equations, and {after} after it");
    };
    gone("x * 1", |x| x * 1.0);
    gone("x / 1", |x| x / 1.0);
    gone("x - 0", |x| x - 0.0);
    gone("x + -0", |x| x + -0.0);
    gone("-(-x)", |x| x.neg().neg());
    gone("transposes", |x| x.transpose().transpose());
    gone("three transposes", |x| x.transpose().permute([1, 0]).swap_dims(0, 1).transpose());
    gone("reshapes", |x| x.reshape([3, 2]).reshape([6, 1]).reshape([2, 3]));
    gone("whole slice", |x| x.slice([0..2, 0..3]));
    gone("conversions", |x| x.cast(DType::F64).cast(DType::F32));
    gone("flips", |x| x.flip([0, 1]).flip([1, 0]));
    gone("where of equals", |x| x.clone().mask_where(x.clone().greater_elem(0.0), x));
    gone("times ones", |x| Tensor::<Traced, 2>::ones([2, 3], &x.device()) * x);
    gone("times expanded ones", |x| {
        let ones: Tensor<Traced, 2> = Tensor::<Traced, 2>::ones([1, 3], &x.device()).expand([2, 3]);
        ones * x
    });
    gone("part that is the whole", |x| Tensor::<Traced, 2>::zeros([2, 3], &x.device()).slice_assign([0..2, 0..3], x));
    let fewer = |name: &str, f: fn(Tensor<Traced, 2>) -> Tensor<Traced, 2>, expected: (usize, usize)| {
        assert_eq!(equations(f), expected, "{name}");
    };
    // A copy of a reversed array is summed in another order.
    fewer("copy of a view", |x| (x.flip([1]) * 1.0).sum_dim(1), (3, 3));
    fewer("reshapes of a view", |x| x.transpose().reshape([2, 3]).reshape([3, 2]).sum_dim(1), (4, 3));
    fewer("copy of a view, by element", |x| (x.flip([1]) * 1.0).exp(), (3, 2));
    fewer("absolute values", |x| x.abs().abs(), (2, 1));
    fewer("clamps", |x| x.clamp(0.0, 1.0).clamp(0.0, 1.0), (2, 1));
    fewer("different clamps", |x| x.clamp(0.0, 1.0).clamp(0.0, 2.0), (2, 2));
    fewer("booleans", |x| x.greater_elem(0.0).bool_not().bool_not().float(), (4, 2));
    fewer("conversions that lose", |x| x.cast(DType::F16).cast(DType::F32), (2, 2));
    fewer("booleans as numbers", |x| x.greater_elem(0.0).int().float(), (3, 2));
    // `x + 0` turns -0 into 0.
    fewer("x + 0", |x| x + 0.0, (1, 1));
    fewer("backwards", |x| x.slice(burn::tensor::s![.., ..;-1]), (1, 1));
    fewer("broadcasting ones", |x| x.sum_dim(1) * Tensor::<Traced, 2>::ones([2, 3], &Default::default()), (3, 3));
}

#[test]
fn identities_of_integers() {
    let n = Array::<B, 1, Int>::new(Tensor::from_ints([1, -2, 0], &Default::default()));
    let idle = |n: Array<Traced, 1, Int>| {
        let n = ((n.val() + 0) * 1 - 0) / 1;
        let n = n.bitwise_or_scalar(0).bitwise_xor_scalar(0).bitwise_left_shift_scalar(0);
        Array::<_, 1, Int>::new(n.bitwise_not().bitwise_not())
    };
    let graph = trace(idle, &n);
    assert_eq!((graph.equations().len(), graph.simplified().equations().len()), (9, 0));
}

#[test]
fn constants_are_computed_once() {
    let f = |x: Array<Traced, 2>| {
        let device = x.val().device();
        let table = Tensor::<Traced, 1>::from_floats([0.0, 1.0, 2.0], &device);
        let angles = (table * 0.5).sin().reshape([1, 3]);
        // An array of repeated elements stays an operation.
        let scale: Tensor<Traced, 2> = Tensor::<Traced, 2>::full([1, 1], 3.0, &device).sqrt().expand([2, 3]);
        Array::<_, 2>::new((x.val() + angles) * scale + Tensor::<Traced, 2>::full([2, 3], 0.25, &device))
    };
    let x = Array::<B, 2>::new(Tensor::from_floats([[1.0, -2.0, 3.0], [4.0, 5.0, -0.0]], &Default::default()));
    let graph = trace(f, &x);
    let folded = graph.clone().with_folded_constants::<B>(&Default::default());
    assert_eq!(bytes(&folded, &x), bytes(&graph, &x));
    let names: Vec<_> = folded.equations().iter().map(|equation| equation.primitive.name()).collect();
    assert_eq!(names, ["broadcast_to", "add", "mul", "full", "add"], "{folded}");
    assert!(folded.to_string().starts_with("{ lambda a:f32[1,3] b:f32[1,1] ;"), "{folded}");
    // A result that depends on no argument has no equations left.
    let known = |_: Array<Traced, 2>| {
        let mask = Tensor::<Traced, 1, Int>::arange(0..4, &Default::default()).greater_elem(1);
        Array::<_, 1, Bool>::new(mask)
    };
    let folded = trace(known, &x).with_folded_constants::<B>(&Default::default());
    assert_eq!((folded.equations().len(), bytes(&folded, &x)), (0, vec![vec![0, 0, 1, 1]]));
}

#[test]
fn large_arrays_are_not_folded() {
    let f = |x: Array<Traced, 1>| {
        let device = x.val().device();
        let large = Tensor::<Traced, 1>::full([100_000], 2.0, &device).exp();
        let number = (Tensor::<Traced, 1>::full([1000], 2.0, &device) * 3.0).sum();
        Array::<_, 1>::new(large.narrow(0, 0, 2) + x.val() * number)
    };
    let x = array([1.0, 2.0]);
    let graph = trace(f, &x);
    let folded = graph.clone().with_folded_constants::<B>(&Default::default());
    assert_eq!(bytes(&folded, &x), bytes(&graph, &x));
    let names: Vec<_> = folded.equations().iter().map(|equation| equation.primitive.name()).collect();
    assert_eq!(names, ["full", "exp", "slice", "mul", "add"], "{folded}");
}

#[test]
fn jit_uses_both() {
    let f = |x: Array<Traced, 1>| {
        let table = Tensor::<Traced, 1>::from_floats([1.0, 2.0], &x.val().device());
        Array::<_, 1>::new((x.val() * 1.0).reshape([2, 1]).reshape([2]) + table.exp())
    };
    let jitted = jit(f);
    let x = array([0.5, -0.5]);
    let found = jitted.call::<B>(x.clone()).val().into_data();
    assert_eq!(jitted.graph().unwrap().counts().into_iter().collect::<Vec<_>>(), [("add".to_owned(), 1)]);
    assert_eq!(found, (x.val() + Tensor::from_floats([1.0, 2.0], &Default::default()).exp()).into_data());
    // Another backend folds its own constants, and a trace folds none.
    let on_candle = Array::<Candle, 1>::new(Tensor::from_data(x.val().into_data(), &Default::default()));
    jitted.call::<Candle>(on_candle);
    let graph = trace(|x: Array<Traced, 1>| jitted.call::<Traced>(x), &x);
    assert_eq!(graph.counts()["exp"], 1, "{graph}");
}
