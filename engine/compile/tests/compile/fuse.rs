//! Random programs: passes and transformations preserve what they compute.

use crate::programs::{Code, Four, inputs, program, run};
use burn::tensor::Tensor;
use grove_backend::{AnyTensor, Backend, Candle, Flex, GeluApproximation, ops};
use grove_compile::{Graph, Traced, jit, jvp, trace, vmap};
use grove_tree::{Array, Key, Tree};
use proptest::{prelude::*, test_runner::RngSeed};

fn numbers<B: Backend>(x: &Array<B, 2>) -> Vec<f32> {
    x.val().into_data().to_vec().unwrap()
}

fn close<B: Backend>(what: &str, found: &[Array<B, 2>], expected: &[Array<B, 2>], tolerance: f32) {
    close_but_for(what, found, expected, tolerance, &vec![0.0; expected.len()]);
}

/// Like [`close`], with an additional absolute tolerance for each result.
fn close_but_for<B: Backend>(
    what: &str,
    found: &[Array<B, 2>],
    expected: &[Array<B, 2>],
    tolerance: f32,
    allowed: &[f32],
) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_eq!(found.shape(), expected.shape(), "{what}, {i}");
        let (found, expected) = (numbers(found), numbers(expected));
        let largest = expected.iter().fold(1.0_f32, |max, x| max.max(x.abs()));
        for (a, b) in found.iter().zip(&expected) {
            let same = (a - b).abs() <= tolerance * largest + allowed[i] || a == b || a.is_nan() && b.is_nan();
            assert!(same, "{what}, result {i}: {a} for {b}");
        }
    }
}

/// Returns a tolerance for each result of a program: a multiple of its change when the inputs are perturbed by rounding errors.
/// Rounding within the program may cause the same change. A program of 25 operations, including cubes, may amplify a rounding
/// error by thousands.
fn rounding<B: Backend>(codes: &[Code], args: &[Array<B, 2>; 4], eager: &[Array<B, 2>]) -> Vec<f32> {
    let mut changes = vec![0.0_f32; eager.len()];
    for seed in 0..3 {
        let moved = args.clone().map(|x| {
            let noise = Key::new(seed).normal::<B, 2>([x.shape()[0], x.shape()[1]], &Default::default());
            x.val() * (noise * 1e-7 + 1.0)
        });
        for ((moved, eager), change) in run(codes, moved).into_iter().zip(eager).zip(&mut changes) {
            let pairs = numbers(&Array::new(moved)).into_iter().zip(numbers(eager));
            *change = pairs.map(|(a, b)| (a - b).abs()).filter(|x| x.is_finite()).fold(*change, f32::max);
        }
    }
    changes.into_iter().map(|change| 10.0 * change).collect()
}

/// Uses the same programs in every run: about one in a thousand compares two nearly equal numbers, and the result of the
/// comparison depends on rounding.
fn programs_of_every_run(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(20), ..Default::default() }
}

/// Jitted and eager results agree: bit for bit without fusion, within a tolerance with fused chains.
fn jitted<B: Backend>(codes: &[Code], seed: u64) {
    let args = inputs::<B>(seed);
    let eager: Vec<_> = run(codes, args.clone().map(|x| x.val())).into_iter().map(Array::new).collect();
    let f = jit(program(codes));
    let (tolerance, allowed) = match B::CHAINS {
        true => (2e-5, rounding(codes, &args, &eager)),
        false => (0.0, vec![0.0; eager.len()]),
    };
    close_but_for("jit", &f.call::<B>(args.clone()), &eager, tolerance, &allowed);
    // With only the last result, more operations can be fused.
    let last = jit(|inputs: Four| program(codes)(inputs).pop());
    let found: Vec<_> = last.call::<B>(args).into_iter().collect();
    let last = eager.len() - 1;
    close_but_for("jit of the last result", &found, &eager[last..], tolerance, &allowed[last..]);
}

proptest! {
    #![proptest_config(programs_of_every_run(200))]

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
        let results = |graph: &Graph| -> Vec<Array<Flex, 2>> {
            let of_data = |x: AnyTensor<Flex>| Array::new(Tensor::from_data(x.into_data(), &Default::default()));
            graph.eval::<Flex, _>(&args).into_iter().map(of_data).collect()
        };
        let expected = results(&graph);
        let allowed = rounding(&codes, &args, &expected);
        for changed in [fewer, graph.clone().decomposed(), graph.without_dead_code()] {
            close_but_for("passes", &results(&changed), &expected, 2e-5, &allowed);
        }
    }

    #[test]
    fn mapped_programs_are_loops(codes in prop::collection::vec(any::<Code>(), 1..15), seed in 0..1000_u64) {
        let examples: Vec<_> = (0..3).map(|i| inputs::<Flex>(seed * 3 + i)).collect();
        let f = program(&codes);
        let found = vmap(&f).call(grove_transform::stack(examples.clone()));
        let found = grove_transform::unstack(found);
        for (found, args) in found.iter().zip(examples) {
            let expected: Vec<_> = run(&codes, args.clone().map(|x| x.val())).into_iter().map(Array::new).collect();
            close_but_for("vmap", found, &expected, 2e-5, &rounding(&codes, &args, &expected));
        }
    }

    /// Except at kinks, the derivative along a direction is the limit of difference quotients.
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
        // Difference quotients over two distances, whose difference bounds the error of either.
        let over = |distance: f64| -> Vec<(Vec<f64>, Vec<f64>)> {
            let quotients = |(a, b): (Vec<f64>, Vec<f64>)| {
                let differences = a.iter().zip(&b).map(|(a, b)| (a - b) / (2.0 * distance)).collect();
                (a, differences)
            };
            at(distance).into_iter().zip(at(-distance)).map(quotients).collect()
        };
        for ((found, (above, differences)), (_, farther)) in found.iter().zip(over(5e-3)).zip(over(1e-2)) {
            let found = numbers(found);
            let largest = differences.iter().fold(1.0_f64, |max, x| max.max(x.abs()));
            let size = above.iter().fold(1.0_f64, |max, x| max.max(x.abs()));
            // If the values are large, their differences have few significant digits.
            if !(size < 30.0 && largest < 100.0) { continue; }
            for ((a, b), c) in found.iter().zip(&differences).zip(&farther) {
                prop_assert!((f64::from(*a) - b).abs() <= 0.02 * largest + (b - c).abs(), "{} for {}", a, b);
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
    // Candle has no kernel for chains and runs another program.
    let on_candle =
        |x: &Array<Flex, 2>| Array::<Candle, 2>::new(Tensor::from_data(x.val().into_data(), &Default::default()));
    let args = (on_candle(&args.0), on_candle(&args.1), on_candle(&args.2));
    close("candle", &[jitted.call::<Candle>(args.clone())], &[f(args)], 0.0);
    assert_eq!(jitted.graphs().len(), 2);
    assert_eq!(jitted.graph().unwrap().equations().len(), 4);
}

/// Sums and means of rows and of all elements are fused; sums over other axes, over short rows, and over a second row length
/// are not.
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
    // A program without results, and one that returns its argument.
    let x = inputs::<Flex>(1);
    assert!(jit(|_: Four| Vec::<Array<Traced, 2>>::new()).call::<Flex>(x.clone()).is_empty());
    let same = jit(|inputs: Four| inputs).call::<Flex>(x.clone());
    assert!(grove_tree::eq(&same, &x));
    fn is_tree<B: Backend, T: Tree<B>>(_: &T) {}
    is_tree::<Flex, _>(&same);
}
