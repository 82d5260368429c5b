//! Random programs: what passes and transformations make of them computes the same.
#![recursion_limit = "256"]

#[path = "common/programs.rs"]
mod programs;

use burn::tensor::Tensor;
use grove_backend::{Backend, Candle, Flex, GeluApproximation, ops};
use grove_compile::{Traced, jit, jvp, trace, vmap};
use grove_tree::{Array, Key, Tree};
use programs::{Code, Four, inputs, program, run};
use proptest::prelude::*;

fn numbers<B: Backend>(x: &Array<B, 2>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

fn close<B: Backend>(what: &str, found: &[Array<B, 2>], expected: &[Array<B, 2>], tolerance: f32) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.shape(), expected.shape(), "{what}, {i}");
        let (found, expected) = (numbers(found), numbers(expected));
        let largest = expected.iter().fold(1.0_f32, |max, x| max.max(x.abs()));
        for (a, b) in found.iter().zip(&expected) {
            let same = (a - b).abs() <= tolerance * largest || a == b || a.is_nan() && b.is_nan();
            assert!(same, "{what}, result {i}: {a} for {b}");
        }
    }
}

/// Jitted and eager results agree: bit for bit where only dispatch changed, nearly where chains are fused.
fn jitted<B: Backend>(codes: &[Code], seed: u64) {
    let args = inputs::<B>(seed);
    let eager: Vec<_> = run(codes, args.clone().map(|x| x.val())).into_iter().map(Array::new).collect();
    let f = jit(program(codes));
    let tolerance = if B::CHAINS { 2e-5 } else { 0.0 };
    close("jit", &f.call::<B>(args.clone()), &eager, tolerance);
    // The last result alone leaves more to be fused.
    let last = jit(|inputs: Four| program(codes)(inputs).pop());
    let found: Vec<_> = last.call::<B>(args).into_iter().collect();
    close("jit of the last result", &found, &eager[eager.len() - 1..], tolerance);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..Default::default() })]

    #[test]
    fn jit_is_the_eager_function(codes in prop::collection::vec(any::<Code>(), 1..25), seed in 0..1000_u64) {
        jitted::<Flex>(&codes, seed);
        jitted::<Candle>(&codes, seed);
    }

    #[test]
    fn passes_keep_results(codes in prop::collection::vec(any::<Code>(), 1..25), seed in 0..1000_u64) {
        let args = inputs::<Flex>(seed);
        let graph = trace(program(&codes), &args);
        prop_assert_eq!(graph.to_string(), trace(program(&codes), &args).to_string());
        let fewer = graph.clone().without_common_subexpressions();
        prop_assert!(fewer.equations().len() <= graph.equations().len());
        let eager = graph.eval::<Flex, _>(&args);
        let expected: Vec<_> = eager.iter().map(|x| x.clone().into_data()).collect();
        for changed in [fewer, graph.clone().decomposed(), graph.without_dead_code()] {
            for (found, expected) in changed.eval::<Flex, _>(&args).into_iter().zip(&expected) {
                let list = |data: burn::tensor::TensorData| data.iter::<f32>().collect::<Vec<_>>();
                let (found, expected) = (list(found.into_data()), list(expected.clone()));
                let largest = expected.iter().fold(1.0_f32, |max, x| max.max(x.abs()));
                for (a, b) in found.iter().zip(&expected) {
                    prop_assert!((a - b).abs() <= 2e-5 * largest || a == b || a.is_nan() && b.is_nan(), "{} for {}", a, b);
                }
            }
        }
    }

    #[test]
    fn mapped_programs_are_loops(codes in prop::collection::vec(any::<Code>(), 1..15), seed in 0..1000_u64) {
        let examples: Vec<_> = (0..3).map(|i| inputs::<Flex>(seed * 3 + i)).collect();
        let f = program(&codes);
        let found = vmap(&f).call(grove_transform::stack(examples.clone()));
        let found = grove_transform::unstack(found);
        for (found, args) in found.iter().zip(examples) {
            let expected: Vec<_> = run(&codes, args.map(|x| x.val())).into_iter().map(Array::new).collect();
            close("vmap", found, &expected, 2e-5);
        }
    }

    /// Along the direction, the derivative is the limit of differences but for kinks.
    #[test]
    fn derivatives_of_smooth_programs(codes in prop::collection::vec(any::<Code>(), 1..12), seed in 0..1000_u64) {
        let smooth: Vec<_> = codes.into_iter().filter(|(op, ..)| ![3, 5, 8, 9, 10, 11, 12, 14, 16, 19].contains(&(op % 20))).collect();
        prop_assume!(!smooth.is_empty());
        let args = inputs::<Flex>(seed);
        let direction = inputs::<Flex>(seed + 7000);
        let f = program(&smooth);
        let (_, found) = jvp(&f, &args, &direction);
        let at = |step: f64| -> Vec<Vec<f64>> {
            let moved = args.iter().zip(&direction).map(|(x, d)| x.val().into_data().iter::<f64>().zip(d.val().into_data().iter::<f64>()).map(|(x, d)| x + step * d).collect::<Vec<_>>());
            let moved: Vec<_> = moved.zip(&args).map(|(values, x)| Tensor::<Flex, 2>::from_data(burn::tensor::TensorData::new(values.into_iter().map(|x| x as f32).collect(), x.shape()), &Default::default())).collect();
            run(&smooth, moved.try_into().unwrap()).into_iter().map(|x| x.into_data().iter::<f64>().collect()).collect()
        };
        let (above, below) = (at(5e-3), at(-5e-3));
        for ((found, above), below) in found.iter().zip(above).zip(below) {
            let found = numbers(found);
            let differences: Vec<f64> = above.iter().zip(&below).map(|(a, b)| (a - b) / 1e-2).collect();
            let largest = differences.iter().fold(1.0_f64, |max, x| max.max(x.abs()));
            let size = above.iter().fold(1.0_f64, |max, x| max.max(x.abs()));
            // Large values leave few digits to their differences.
            if !(size < 30.0 && largest < 100.0) { continue; }
            for (a, b) in found.iter().zip(&differences) {
                prop_assert!((f64::from(*a) - b).abs() <= 0.02 * largest, "{} for {}", a, b);
            }
        }
    }
}

#[test]
fn a_chain_is_one_operation() {
    let shapes = ([64, 32], [1, 32]);
    let x = Array::<Flex, 2>::new(Key::new(1).normal(shapes.0, &Default::default()));
    let row = Array::<Flex, 2>::new(Key::new(2).normal(shapes.1, &Default::default()));
    fn f<B: Backend>((x, scale, shift): (Array<B, 2>, Array<B, 2>, Array<B, 2>)) -> Array<B, 2> {
        Array::new(ops::gelu(x.val() * scale.val() + shift.val(), GeluApproximation::Tanh) + x.val())
    }
    let jitted = jit(f::<Traced>);
    let args = (x, row.clone(), row);
    let (found, expected) = (jitted.call::<Flex>(args.clone()), f(args.clone()));
    close("chain", &[found], &[expected], 1e-6);
    let graph = jitted.graph().unwrap();
    assert_eq!(graph.equations().len(), 1, "{graph}");
    assert!(graph.to_string().contains("fused[mul,add,gelu,add] a b c"), "{graph}");
    assert_eq!(graph.cost().total.flops, 4 * 64 * 32);
    // Another backend has no kernel for chains, and runs another program.
    let on_candle =
        |x: &Array<Flex, 2>| Array::<Candle, 2>::new(Tensor::from_data(x.val().into_data(), &Default::default()));
    let args = (on_candle(&args.0), on_candle(&args.1), on_candle(&args.2));
    close("candle", &[jitted.call::<Candle>(args.clone())], &[f(args)], 0.0);
    assert_eq!(jitted.graphs().len(), 2);
    assert_eq!(jitted.graph().unwrap().equations().len(), 4);
}

/// Sums and means of rows and of all end chains; sums over other axes, over short rows, and of two lengths do not.
#[test]
fn sums_end_a_chain() {
    fn f<B: Backend>([x, row]: [Array<B, 2>; 2]) -> [Array<B, 2>; 4] {
        let y = (x.val() * row.val()).exp() - 1.0;
        let far = (x.val() - row.val()).square();
        [y.clone(), y.clone().sum_dim(1), y.mean_dim(1), far.mean().reshape([1, 1])].map(Array::new)
    }
    for (shape, operations) in [([5, 40], 3), ([3, 20_000], 3), ([1, 70_000], 3), ([40, 5], 5)] {
        let args =
            [shape, [1, shape[1]]].map(|shape| Array::<Flex, 2>::new(Key::new(4).normal(shape, &Default::default())));
        let jitted = jit(f::<Traced>);
        close("sums", &jitted.call::<Flex>(args.clone()), &f(args), 1e-5);
        let graph = jitted.graph().unwrap();
        assert_eq!(graph.equations().len(), operations, "{shape:?}: {graph}");
        let ends = graph.to_string().matches("reduce_").count();
        assert_eq!(ends, 3, "{graph}");
        assert_eq!(graph.to_string().contains("fused[mul,exp,sub,reduce_sum,reduce_mean]"), shape[1] > 5, "{graph}");
    }
    // A value that is summed in two ways, and a sum that the chain itself would use.
    fn g<B: Backend>(x: Array<B, 2>) -> [Array<B, 2>; 3] {
        let y = x.val().exp() * 2.0;
        let all = y.clone().sum().reshape([1, 1]);
        let z = y.clone() / y.clone().sum_dim(1) + all.clone();
        [y.sum_dim(0), z, all].map(Array::new)
    }
    let x = Array::<Flex, 2>::new(Key::new(5).normal([6, 50], &Default::default()));
    let jitted = jit(g::<Traced>);
    close("two sums", &jitted.call::<Flex>(x.clone()), &g(x), 1e-5);
}

#[test]
fn trees_of_any_length() {
    // A program of no results, and one of an argument.
    let x = inputs::<Flex>(1);
    assert!(jit(|_: Four| Vec::<Array<Traced, 2>>::new()).call::<Flex>(x.clone()).is_empty());
    let same = jit(|inputs: Four| inputs).call::<Flex>(x.clone());
    assert!(grove_tree::eq(&same, &x));
    fn is_tree<B: Backend, T: Tree<B>>(_: &T) {}
    is_tree::<Flex, _>(&same);
}
