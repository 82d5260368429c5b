use super::*;
use crate::dispatch::TASK;

/// Outputs for inputs that are all shared.
fn run(chain: &Chain, inputs: &[&[f32]]) -> Vec<Vec<f32>> {
    let outputs = chain.run(inputs.iter().map(|x| Input::Shared(x)).collect()).into_iter();
    let new = |output| match output {
        Output::New(values) => values,
        Output::Input(_) => panic!("no input was donated"),
    };
    outputs.map(new).collect()
}

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 31) % 1000) as f32 / 250.0 - 2.0).collect()
}

/// Every kind of access and place, with partial tiles and tasks.
#[test]
fn chains_of_every_length() {
    let lengths = if cfg!(miri) { [(1, 1, 1), (3, 5, 7)] } else { [(1, 1, 1), (7, 33, 101)] };
    for (a, b, c) in lengths {
        let len = a * b * c;
        let inputs = vec![
            Access { repeat: 1, len },
            Access { repeat: 1, len: c },
            Access { repeat: c, len: b },
            Access { repeat: b * c, len: a },
            Access { repeat: 1, len: 1 },
        ];
        let data: Vec<_> = inputs.iter().enumerate().map(|(i, access)| values(access.len, i)).collect();
        let steps = vec![
            Step::Pair(Pair::Mul, 0, 1),    // 5
            Step::Pair(Pair::Add, 5, 2),    // 6
            Step::Map(Map::Tanh, 6),        // 7
            Step::Number(Pair::Gt, 7, 0.0), // 8
            Step::Select(8, 7, 3),          // 9, an output
            Step::Pair(Pair::Sub, 9, 4),    // 10
            Step::Clamp(10, -1.0, 1.0),     // 11
            Step::Fill(8, 11, 0.25),        // 12
            Step::Power(12, 3),             // 13, an output
            Step::Pair(Pair::Mul, 13, 13),  // 14, unused
        ];
        let found = run(&Chain::new(inputs, steps, &[9, 13], len), &data.iter().map(|x| &x[..]).collect::<Vec<_>>());
        for i in 0..len {
            let sum = data[0][i] * data[1][i % c] + data[2][i / c % b];
            let bounded = sum.tanh();
            let chosen = if bounded > 0.0 { bounded } else { data[3][i / (b * c)] };
            let kept = (chosen - data[4][0]).clamp(-1.0, 1.0);
            let filled: f32 = if bounded > 0.0 { 0.25 } else { kept };
            assert!((found[0][i] - chosen).abs() < 1e-6, "{i}: {} {chosen}", found[0][i]);
            assert!((found[1][i] - filled.powi(3)).abs() < 1e-5, "{i}: {} {filled}", found[1][i]);
        }
    }
}

/// Two steps in one loop give the same bits as two loops, which a chain has if every result is an output.
#[test]
fn steps_in_one_loop_keep_bits() {
    let arithmetic = [Pair::Add, Pair::Sub, Pair::Mul];
    let maps = [Map::Exp, Map::Erf, Map::Tanh, Map::GeluErf, Map::GeluTanh, Map::Selu];
    let pairs = |a, b| arithmetic.map(|pair| Step::Pair(pair, a, b));
    let numbers = |a| arithmetic.map(|pair| Step::Number(pair, a, 0.7));
    let firsts = [pairs(0, 1), numbers(0)].concat().into_iter().chain(maps.map(|map| Step::Map(map, 0)));
    let seconds = [pairs(3, 2), pairs(2, 3), numbers(3)].concat();
    for len in if cfg!(miri) { vec![19] } else { vec![1, 19, 2_077] } {
        let full = Access { repeat: 1, len };
        let mut data = [1, 2, 3].map(|seed| values(len, seed));
        data[0][len / 2] = f32::NAN;
        data[2][0] = f32::INFINITY;
        let data: Vec<&[f32]> = data.iter().map(|x| &x[..]).collect();
        for first in firsts.clone() {
            for &second in &seconds {
                let steps = vec![first, second, Step::Map(Map::Abs, 4)];
                let chain = |outputs: &[usize]| Chain::new(vec![full; 3], steps.clone(), outputs, len);
                let (one, two) = (chain(&[5]), chain(&[5, 3, 4]));
                assert_eq!(two.plan.passes.len(), 3);
                let number = matches!((first, second), (Step::Map(..), Step::Number(..)));
                assert_eq!(one.plan.passes.len(), if number { 3 } else { 2 }, "{first:?} {second:?}");
                let bits = |chain: &Chain| run(chain, &data)[0].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&one), bits(&two), "{first:?} {second:?}");
            }
        }
    }
}

/// The same for functions of `a b + c`.
#[test]
fn functions_of_affine_maps_keep_bits() {
    let len = if cfg!(miri) { 19 } else { 2_077 };
    let full = Access { repeat: 1, len };
    let data = [1, 2, 3, 4].map(|seed| values(len, seed));
    let data: Vec<&[f32]> = data.iter().map(|x| &x[..]).collect();
    for map in [Map::Exp, Map::Erf, Map::Tanh, Map::GeluErf, Map::GeluTanh, Map::Selu] {
        for sum in [Step::Pair(Pair::Add, 4, 2), Step::Pair(Pair::Add, 2, 4)] {
            let seconds =
                [Pair::Add, Pair::Sub, Pair::Mul].map(|pair| [Step::Pair(pair, 6, 3), Step::Pair(pair, 3, 6)]);
            for second in seconds.concat().into_iter().map(Some).chain([None]) {
                let steps: Vec<_> = [Some(Step::Pair(Pair::Mul, 0, 1)), Some(sum), Some(Step::Map(map, 5)), second]
                    .into_iter()
                    .flatten()
                    .collect();
                let last = 3 + steps.len();
                let chain = |outputs: &[usize]| Chain::new(vec![full; 4], steps.clone(), outputs, len);
                let all: Vec<usize> = (4..=last).rev().collect();
                let (one, many) = (chain(&[last]), chain(&all));
                assert_eq!((one.plan.passes.len(), many.plan.passes.len()), (1, steps.len()), "{steps:?}");
                let bits = |chain: &Chain| run(chain, &data)[0].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&one), bits(&many), "{steps:?}");
            }
        }
    }
}

/// A result that is used twice, is an output or is summed is written to memory.
#[test]
fn results_that_are_needed_are_written() {
    let full = Access { repeat: 1, len: 40 };
    let steps = |second| vec![Step::Number(Pair::Mul, 0, 3.0), second, Step::Number(Pair::Sub, 2, 1.0)];
    let passes = |chain: &Chain| chain.plan.passes.len();
    let twice = Chain::new(vec![full], steps(Step::Pair(Pair::Add, 1, 1)), &[3], 40);
    let once = Chain::new(vec![full], steps(Step::Pair(Pair::Add, 0, 1)), &[3], 40);
    assert_eq!((passes(&twice), passes(&once)), (2, 2));
    let sums = vec![Sum { value: 1, row: 40, divisor: 1.0 }, Sum { value: 2, row: 40, divisor: 1.0 }];
    let summed = once.with_sums(sums);
    assert_eq!(passes(&summed), 3);
    let found = run(&summed, &[&[1.0; 40]]);
    assert_eq!(found, [vec![3.0; 40], vec![120.0], vec![160.0]]);
    assert_eq!(run(&twice, &[&[1.0; 40]]), [[5.0; 40]]);
}

/// Outputs overwrite inputs: within one step, after later reads, and with more or fewer outputs than donated inputs.
#[test]
fn outputs_overwrite_donated_inputs() {
    for len in if cfg!(miri) { vec![1, 70] } else { vec![1, 70, 1024, 5000, 3 * TASK + 7] } {
        let full = Access { repeat: 1, len };
        let inputs = vec![full, Access { repeat: 1, len: 1 }, full];
        let steps = vec![
            Step::Map(Map::Abs, 0),          // 3, an output, before the last reads of 0 and 2
            Step::Pair(Pair::Sub, 0, 2),     // 4
            Step::Pair(Pair::Mul, 4, 1),     // 5, an output
            Step::Number(Pair::Add, 2, 1.0), // 6, an output
        ];
        let data = [values(len, 1), vec![0.5], values(len, 2)];
        for outputs in [vec![3], vec![5], vec![3, 5], vec![6, 5, 3]] {
            let chain = Chain::new(inputs.clone(), steps.clone(), &outputs, len).with_sums(vec![Sum {
                value: 4,
                row: len,
                divisor: 1.0,
            }]);
            let expected = run(&chain, &[&data[0], &data[1], &data[2]]);
            let [mut a, mut b, mut c] = data.clone();
            let given = vec![Input::Donated(&mut a), Input::Donated(&mut b), Input::Donated(&mut c)];
            let found = chain.run(given);
            let places: Vec<_> = found.iter().map(|output| matches!(output, Output::Input(_))).collect();
            let donated = outputs.len().min(2);
            // An input with one element also matches each output with one element.
            assert!(len == 1 || places.iter().filter(|place| **place).count() == donated, "{places:?}");
            let memory = [a, b, c];
            let found: Vec<Vec<f32>> = found
                .into_iter()
                .map(|output| match output {
                    Output::New(values) => values,
                    Output::Input(input) => memory[input].clone(),
                })
                .collect();
            assert_eq!(found, expected, "{len} {outputs:?}");
        }
    }
}

/// Sums over short rows, rows longer than a tile and than a task, and over all elements; of outputs and of other values.
#[test]
fn sums_of_rows() {
    let sizes = if cfg!(miri) {
        vec![(2, 3), (1, 40)]
    } else {
        vec![(1, 1), (7, 1), (700, 33), (3, 2_500), (2, TASK + 5), (1, 3 * TASK), (40, 1024)]
    };
    for (rows, row) in sizes {
        let len = rows * row;
        let x = values(len, 3);
        let inputs = vec![Access { repeat: 1, len }, Access { repeat: 1, len: row }];
        let steps = vec![Step::Pair(Pair::Mul, 0, 1), Step::Power(2, 2)];
        let sums = vec![Sum { value: 3, row, divisor: row as f32 }, Sum { value: 2, row, divisor: 1.0 }];
        let chain = Chain::new(inputs, steps, &[2], len).with_sums(sums);
        let found = run(&chain, &[&x, &x[..row]]);
        assert_eq!(found, run(&chain, &[&x, &x[..row]]));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [len, rows, rows]);
        for i in 0..rows {
            let products = (0..row).map(|j| f64::from(x[i * row + j]) * f64::from(x[j]));
            let (sum, size): (f64, f64) = products.clone().fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
            let mean = products.map(|x| x * x).sum::<f64>() / row as f64;
            assert!((f64::from(found[1][i]) - mean).abs() <= 2e-6 * mean, "{row}: {} {mean}", found[1][i]);
            assert!((f64::from(found[2][i]) - sum).abs() <= 2e-6 * size + 1e-6, "{row}: {} {sum}", found[2][i]);
        }
    }
    let one = Chain::new(vec![Access { repeat: 1, len: 20 }], vec![Step::Map(Map::Exp, 0)], &[], 20);
    let one = one.with_sums(vec![Sum { value: 1, row: 20, divisor: 1.0 }]);
    assert_eq!(run(&one, &[&[0.0; 20]]), [[20.0]]);
    assert!(run(&one, &[&[f32::NAN; 20]])[0][0].is_nan());
    assert_eq!(run(&one, &[&[f32::NEG_INFINITY; 20]]), [[0.0]]);
}

#[test]
fn functions_match_the_library() {
    let x = values(1100, 1);
    let f = |map: Map| {
        let access = vec![Access { repeat: 1, len: x.len() }];
        run(&Chain::new(access, vec![Step::Map(map, 0)], &[1], x.len()), &[&x]).remove(0)
    };
    type Function = fn(f64) -> f64;
    let table: [(Map, Function); 13] = [
        (Map::Copy, |x| x),
        (Map::Abs, f64::abs),
        (Map::Exp, f64::exp),
        (Map::Log, f64::ln),
        (Map::Log1p, f64::ln_1p),
        (Map::Sqrt, f64::sqrt),
        (Map::Recip, f64::recip),
        (Map::Erf, libm::erf),
        (Map::Sin, f64::sin),
        (Map::Cos, f64::cos),
        (Map::Tanh, f64::tanh),
        (Map::Floor, f64::floor),
        (Map::IsNan, |x| f64::from(u8::from(x.is_nan()))),
    ];
    for (map, expected) in table {
        for (y, &x) in f(map).iter().zip(&x) {
            let expected = expected(f64::from(x));
            let close = (f64::from(*y) - expected).abs() <= 1e-6 * expected.abs().max(1.0);
            assert!(close || y.is_nan() && expected.is_nan() || *y as f64 == expected, "{map:?} {x}: {y} {expected}");
        }
    }
    assert_eq!(f(Map::Selu), crate::selu(&x));
    assert_eq!(f(Map::GeluErf), crate::gelu_erf(&x));
    assert_eq!(f(Map::GeluTanh), crate::gelu_tanh(&x));
}

#[test]
fn nan_propagates() {
    let access = vec![Access { repeat: 1, len: 2 }];
    let y = run(&Chain::new(access, vec![Step::Clamp(0, 0.0, 1.0)], &[1], 2), &[&[f32::NAN, 3.0]]).remove(0);
    assert!(y[0].is_nan() && y[1] == 1.0);
}

#[test]
#[should_panic(expected = "step 0 uses value 1, which comes after it")]
fn refuses_a_later_value() {
    Chain::new(vec![Access { repeat: 1, len: 1 }], vec![Step::Map(Map::Exp, 1)], &[1], 1);
}
