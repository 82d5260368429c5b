//! Compares planned loops with step-by-step runs: random bodies of all dtypes, and every primitive that has an instruction.

mod random;

use burn::tensor::{DType, TensorData};
use burn_ir::ScalarIr;
use grove_backend::{AnyTensor, Flex, ops::Spec};

use super::with_plan;
use crate::{
    Primitive, Var,
    control::step_by_step,
    primitive::Binary,
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop, stacked},
    target::Target,
};
use random::{BOOL, Builder, F32, F64, I32, I64, Random, random_scan, random_while, spec};

/// Returns the bits of arrays, with a single bit pattern for NaN.
fn bits(values: Vec<AnyTensor<Flex>>) -> Vec<(Vec<usize>, DType, Vec<u64>)> {
    let one = |x: AnyTensor<Flex>| {
        let data = x.into_data();
        let bits = match data.dtype {
            DType::F32 => {
                data.iter::<f32>().map(|x| if x.is_nan() { 0x7fc0_0000 } else { x.to_bits().into() }).collect()
            }
            DType::F64 => data.iter::<f64>().map(|x| if x.is_nan() { 1 << 62 } else { x.to_bits() }).collect(),
            _ => data.iter::<i64>().map(|x| x as u64).collect(),
        };
        (data.shape.to_vec(), data.dtype, bits)
    };
    values.into_iter().map(one).collect()
}

/// Asserts that a loop has a plan and that its results equal a step-by-step run. Returns the results.
fn check(name: &str, op: &HigherOrder, inputs: &[TensorData]) -> Vec<AnyTensor<Flex>> {
    let device = Default::default();
    let target = Target::<Flex>::new(&device);
    let arguments =
        || inputs.iter().map(|data| AnyTensor::<Flex>::from_data(data.clone(), &device)).collect::<Vec<_>>();
    let planned = |op: &HigherOrder| {
        with_plan(op, &target, |plan| {
            let plan = plan.unwrap_or_else(|| panic!("{name} has no plan"));
            assert!(plan.takes(&arguments()));
            plan.run(arguments(), None, &target)
        })
    };
    let expected = bits(step_by_step(op, arguments(), &target));
    assert_eq!(bits(planned(op)), expected, "{name}: {op:#?}");
    let fused = op.fused();
    assert_eq!(bits(planned(&fused)), bits(step_by_step(&fused, arguments(), &target)), "{name}, fused: {fused:#?}");
    planned(op)
}

#[test]
fn random_loops_are_their_single_steps() {
    let kinds = [F32, F64, I32, I64, BOOL];
    let specs: Vec<Spec> =
        kinds.iter().flat_map(|kind| [&[3][..], &[2, 3], &[1]].map(|shape| spec(*kind, shape))).collect();
    for seed in 0..400 {
        let random = &mut Random(seed * 7919 + 1);
        let some = |random: &mut Random, n: usize| (0..n).map(|_| random.one_of(&specs)).collect::<Vec<_>>();
        let (consts, carry) = (some(random, 2), some(random, 4));
        let (op, inputs) = if seed % 2 == 0 {
            let (rows, length) = (some(random, 2), random.below(5) + 1);
            let op = random_scan(random, [&consts, &carry, &rows], length, 12, 2);
            let xs = rows.iter().map(|row| stacked(row, length)).collect();
            (op, [consts, carry, xs].concat())
        } else {
            let (op, counter) = random_while(random, [&consts, &carry], 12, 2);
            (op, [consts, vec![counter], carry].concat())
        };
        let mut data: Vec<TensorData> = inputs.iter().map(|spec| random.data(spec)).collect();
        if let HigherOrder::While(WhileLoop { consts, .. }) = &op {
            data[*consts] = TensorData::new(vec![0_i64], [1]);
        }
        check(&format!("seed {seed}"), &op, &data);
    }
}

/// A step that returns its carry in another order, and parts of it.
#[test]
fn carries_that_change_places() {
    let pair = spec(F32, &[2]);
    let mut body = Builder::new(&[pair.clone(), pair.clone(), spec(F32, &[1])]);
    let [a, b, c] = [0, 1, 2].map(|i| body.input(i));
    let part = body.one(Primitive::Slice(vec![(1..2).into()]), &[a], spec(F32, &[1]));
    let graph = body.build(&[b, a, part, c, a]);
    let op =
        HigherOrder::Scan(ScanLoop { body: SubGraph::new(graph), length: 3, reverse: false, consts: 0, carries: 3 });
    let data = [vec![1.0_f32, 2.0], vec![3.0, 4.0], vec![5.0]].map(|x| {
        let shape = [x.len()];
        TensorData::new(x, shape)
    });
    let results: Vec<Vec<f32>> =
        check("places", &op, &data).into_iter().map(|x| x.into_data().iter::<f32>().collect()).collect();
    assert_eq!(results[..3], [vec![3.0, 4.0], vec![1.0, 2.0], vec![2.0]]);
    assert_eq!(results[3..], [vec![5.0, 2.0, 4.0], vec![1.0, 2.0, 3.0, 4.0, 1.0, 2.0]]);
}

/// Indices have the integer dtype of the trace, which some backends do not use.
#[test]
fn positions_have_the_recorded_type() {
    for dtype in [I32, I64] {
        let mut body = Builder::new(&[spec(F32, &[3])]);
        let x = body.input(0);
        let position = body.one(Primitive::Argmax(0), &[x], spec(dtype, &[1]));
        let next = body.one(Primitive::BinaryScalar(Binary::Add, ScalarIr::Int(1)), &[position], spec(dtype, &[1]));
        let op = HigherOrder::Scan(ScanLoop {
            body: SubGraph::new(body.build(&[x, position, next])),
            length: 2,
            reverse: false,
            consts: 0,
            carries: 1,
        });
        let data = [TensorData::from([0.5_f32, 2.0, 1.0])];
        let found: Vec<_> = check("positions", &op, &data).into_iter().map(AnyTensor::into_data).collect();
        assert_eq!(found[1].iter::<i64>().chain(found[2].iter()).collect::<Vec<_>>(), [1, 1, 2, 2]);
        assert_eq!([found[1].dtype, found[2].dtype], [dtype; 2]);
    }
}

/// Loops with larger arrays or other dtypes have no plan and run step by step.
#[test]
fn large_arrays_have_no_plan() {
    for (dtype, size) in [(F32, super::MAX_ELEMENTS + 1), (DType::F16, 3), (DType::U8, 3)] {
        let mut body = Builder::new(&[spec(dtype, &[size])]);
        let x = body.input(0);
        let y = body.one(Primitive::BinaryScalar(Binary::Add, ScalarIr::Int(1)), &[x], spec(dtype, &[size]));
        let body = SubGraph::new(body.build(&[y]));
        let op = HigherOrder::Scan(ScanLoop { body, length: 2, reverse: false, consts: 0, carries: 1 });
        let device = Default::default();
        with_plan(&op, &Target::<Flex>::new(&device), |plan| assert!(plan.is_none(), "{dtype:?} {size}"));
    }
}

/// A plan panics with the same message as the operation.
#[test]
fn panics_keep_their_messages() {
    let x = spec(I64, &[2]);
    type Body = fn(&mut Builder) -> Var;
    let cases: [(&str, Body); 2] = [
        ("out of", |body| body.one(Primitive::Take(0), &[body.input(0), body.input(2)], spec(I64, &[2]))),
        ("min > max", |body| {
            body.one(Primitive::Clamp(ScalarIr::Int(2), ScalarIr::Int(1)), &[body.input(0)], spec(I64, &[2]))
        }),
    ];
    for (words, case) in cases {
        let mut body = Builder::new(&[x.clone(), x.clone(), x.clone()]);
        let y = case(&mut body);
        let (zeros, positions) = (body.input(1), body.input(2));
        let body = SubGraph::new(body.build(&[y, zeros, positions]));
        let device = Default::default();
        let target = Target::<Flex>::new(&device);
        let run = |length, planned: bool| {
            let op = HigherOrder::Scan(ScanLoop { body: body.clone(), length, reverse: false, consts: 0, carries: 3 });
            let data = [[1_i64, 2], [0, 1], [0, 7]].map(TensorData::from);
            let inputs = data.map(|data| AnyTensor::<Flex>::from_data(data, &device)).to_vec();
            grove_backend::panic_hook::catch(|| match planned {
                true => with_plan(&op, &target, |plan| plan.expect("a plan").run(inputs, None, &target)),
                false => step_by_step(&op, inputs, &target),
            })
        };
        let (planned, stepwise) = (run(1, true).unwrap_err(), run(1, false).unwrap_err());
        assert_eq!(planned, stepwise);
        assert!(planned.contains(words) || words == "min > max" && planned.contains("min <= max"), "{planned}");
        assert!(run(0, true).is_ok(), "nothing is computed without steps");
    }
}
