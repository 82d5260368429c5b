//! Batching rules of higher-order operations.

use burn::tensor::DType;
use burn_ir::ScalarIr;
use grove_backend::{AnyTensor, Backend, ops::Spec};

use super::{
    apply,
    flagged::{self, Flagged},
    stopped,
};
use crate::{
    Primitive, Traced,
    eval::apply_one,
    primitive::{Binary, Reduction, Unary},
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop, is_float},
    target::{Target, missing},
    traced::{Recording, outputs_at},
    vmap::{Batched, expanded, move_axis, run_batched},
};

/// Batches a graph. The batch axis is the first one. Arguments have it if `given` is true. `finish` may replace the results.
fn record(
    graph: &SubGraph,
    given: &[bool],
    examples: usize,
    finish: impl FnOnce(Vec<Batched<Traced>>, &[Batched<Traced>], &Target<'_, Traced>) -> Vec<Batched<Traced>>,
) -> Flagged {
    let recording = Recording::start(graph.types);
    let input = |(spec, batched): (Spec, &bool)| {
        let shape = if *batched { [&[examples], &spec.shape[..]].concat().into() } else { spec.shape };
        let tensor = recording.input("argument", Spec { shape, dtype: spec.dtype });
        Batched { tensor, batched: *batched }
    };
    let arguments: Vec<_> = graph.input_specs().into_iter().zip(given).map(input).collect();
    let device = recording.device();
    let results = run_batched::<Traced>(graph.program(), arguments.clone(), examples, &device);
    let results = finish(results, &arguments, &Target::new(&device));
    let flags = results.iter().map(|x| x.batched).collect();
    let graph = recording.finish(outputs_at("result", tensors(results)));
    Flagged { graph: SubGraph::new(graph), flags }
}

/// Like [`record`], but a result always has the batch axis if `forced` is true.
fn batched(graph: &SubGraph, given: &[bool], forced: &[bool], examples: usize) -> Flagged {
    record(graph, given, examples, |results, _, target| {
        let result = |(x, forced): (Batched<Traced>, &bool)| if *forced { all(x, examples, target) } else { x };
        results.into_iter().zip(forced).map(result).collect()
    })
}

/// Broadcasts a value to the batch.
fn all<B: Backend>(x: Batched<B>, examples: usize, target: &Target<'_, B>) -> Batched<B> {
    Batched { tensor: expanded(x, examples, target), batched: true }
}

/// Returns `yes` for the examples whose mask is true and `no` for the others. Both must have the batch axis.
fn select<B: Backend>(
    mask: &AnyTensor<B>,
    yes: AnyTensor<B>,
    no: AnyTensor<B>,
    target: &Target<'_, B>,
) -> AnyTensor<B> {
    let shape = yes.shape();
    let mut narrow = vec![1; shape.num_dims()];
    narrow[0] = shape[0];
    let mask = apply_one(&Primitive::BroadcastTo(shape.to_vec()), [mask.clone().reshape(narrow)], target);
    apply_one(&Primitive::Where, [no, mask, yes], target)
}

/// Runs an operation for a batch of examples. At least one input has the batch axis.
pub(crate) fn higher_order<B: Backend>(
    op: &HigherOrder,
    inputs: Vec<Batched<B>>,
    examples: usize,
    target: &Target<'_, B>,
) -> Vec<Option<Batched<B>>> {
    let given: Vec<_> = inputs.iter().map(|x| x.batched).collect();
    let (op, inputs, batched) = match op {
        HigherOrder::Cond { branches } if given[0] => {
            return every_branch(branches, inputs, examples, target).into_iter().map(Some).collect();
        }
        HigherOrder::Cond { branches } => {
            let derive = |branch: &SubGraph, forced: &[bool]| batched(branch, &given[1..], forced, examples);
            let (branches, flags) = flagged::branches(branches, derive);
            (HigherOrder::Cond { branches }, tensors(inputs), flags)
        }
        HigherOrder::While(op) => while_loop(op, inputs, examples, target),
        HigherOrder::Scan(scan) => {
            let (consts, carries) = (scan.consts, scan.carries);
            let (step, given) = looped(&scan.body, consts, given, carries, examples);
            let input = |(i, x): (usize, Batched<B>)| match i.checked_sub(consts) {
                Some(carry) if carry < carries && given[i] => expanded(x, examples, target),
                // Steps must be along the first axis.
                Some(carry) if carry >= carries && given[i] => move_axis(x.tensor, 0, 1),
                _ => x.tensor,
            };
            let inputs = inputs.into_iter().enumerate().map(input).collect();
            let op = HigherOrder::Scan(ScanLoop { body: step.graph, ..scan.clone() });
            let results = apply(&op, inputs, target.device).into_iter().zip(step.flags).enumerate();
            let result = |(i, (tensor, batched)): (usize, (AnyTensor<B>, bool))| {
                let tensor = if batched && i >= carries { move_axis(tensor, 1, 0) } else { tensor };
                Some(Batched { tensor, batched })
            };
            return results.map(result).collect();
        }
        HigherOrder::CustomJvp { name, function, jvp } => {
            let forced = vec![true; function.outputs.len()];
            let of_tangents =
                function.input_specs().iter().zip(&given).filter(|(spec, _)| is_float(spec)).map(|(_, x)| *x).collect();
            let with_tangents = [given.clone(), of_tangents].concat();
            let op = HigherOrder::CustomJvp {
                name: name.clone(),
                function: batched(function, &given, &forced, examples).graph,
                jvp: jvp.map(move |jvp| {
                    let forced = vec![true; jvp.outputs.len()];
                    (*batched(jvp, &with_tangents, &forced, examples).graph).clone()
                }),
            };
            (op, tensors(inputs), vec![true; function.outputs.len()])
        }
        HigherOrder::CustomVjp { name, function, forward, backward } => {
            let outputs = function.outputs.len();
            let mut forced = vec![false; forward.outputs.len()];
            forced[..outputs].fill(true);
            let forward = batched(forward, &given, &forced, examples);
            let grads = function.output_specs().iter().filter(|spec| is_float(spec)).count();
            let of_backward = [&forward.flags[outputs..], &vec![true; grads]].concat();
            let of_inputs: Vec<_> =
                function.input_specs().iter().zip(&given).filter(|(spec, _)| is_float(spec)).map(|(_, x)| *x).collect();
            let backward = backward.map(move |backward| {
                let graph = record(backward, &of_backward, examples, |results, _, target| {
                    let result = |(x, batched): (Batched<Traced>, &bool)| match (batched, x.batched) {
                        (true, _) => all(x, examples, target),
                        (false, true) => summed(x, target),
                        (false, false) => x,
                    };
                    results.into_iter().zip(&of_inputs).map(result).collect()
                });
                (*graph.graph).clone()
            });
            let op = HigherOrder::CustomVjp {
                name: name.clone(),
                function: batched(function, &given, &forced, examples).graph,
                forward: forward.graph,
                backward,
            };
            (op, tensors(inputs), vec![true; outputs])
        }
    };
    let results = apply(&op, inputs, target.device).into_iter().zip(batched);
    results.map(|(tensor, batched)| Some(Batched { tensor, batched })).collect()
}

fn tensors<B: Backend>(inputs: Vec<Batched<B>>) -> Vec<AnyTensor<B>> {
    inputs.into_iter().map(|x| x.tensor).collect()
}

/// Sums the gradient of an input that all examples share.
fn summed<B: Backend>(x: Batched<B>, target: &Target<'_, B>) -> Batched<B> {
    let shape = x.tensor.shape()[1..].to_vec();
    let sum = apply_one(&Primitive::Reduce(Reduction::Sum, Some(0)), [x.tensor], target);
    Batched { tensor: sum.reshape(shape), batched: false }
}

/// Computes all branches and selects the result of each example.
///
/// The operands of a branch receive a gradient only from the examples that take the branch. Otherwise an infinite derivative in
/// another example would be multiplied by a gradient of 0 and give NaN.
fn every_branch<B: Backend>(
    branches: &[SubGraph],
    mut inputs: Vec<Batched<B>>,
    examples: usize,
    target: &Target<'_, B>,
) -> Vec<Batched<B>> {
    let operands = inputs.split_off(1);
    let index = inputs.pop().unwrap_or_else(|| missing()).tensor;
    let last = branches.len() - 1;
    let compare =
        |op, i: usize| apply_one(&Primitive::BinaryScalar(op, ScalarIr::Int(i as i64)), [index.clone()], target);
    let takes = |i: usize| match (&index, i) {
        (AnyTensor::Bool(_), 0) => apply_one(&Primitive::Unary(Unary::Not), [index.clone()], target),
        (AnyTensor::Bool(_), _) => index.clone(),
        // An index out of range is clamped.
        (_, 0) => compare(Binary::Le, 0),
        (_, i) if i == last => compare(Binary::Ge, i),
        (_, i) => compare(Binary::Eq, i),
    };
    let mut selected: Option<Vec<AnyTensor<B>>> = None;
    for (i, branch) in branches.iter().enumerate() {
        let mask = (last > 0).then(|| takes(i));
        let operand = |x: &Batched<B>| match &mask {
            Some(mask) if matches!(x.tensor, AnyTensor::Float(_)) => {
                let x = expanded(x.clone(), examples, target);
                Batched { tensor: select(mask, x.clone(), stopped(x), target), batched: true }
            }
            _ => x.clone(),
        };
        let results = run_batched(branch.program(), operands.iter().map(operand).collect(), examples, target.device);
        let results = results.into_iter().map(|x| expanded(x, examples, target));
        selected = Some(match (selected, &mask) {
            (Some(others), Some(mask)) => {
                others.into_iter().zip(results).map(|(other, own)| select(mask, own, other, target)).collect()
            }
            _ => results.collect(),
        });
    }
    let selected = selected.unwrap_or_default().into_iter();
    selected.map(|tensor| Batched { tensor, batched: true }).collect()
}

/// Batches the body of a loop. Also returns, for each argument, true if it has the batch axis.
fn looped(body: &SubGraph, consts: usize, given: Vec<bool>, carries: usize, examples: usize) -> (Flagged, Vec<bool>) {
    flagged::looped(body, consts, carries, given, |given, forced| batched(body, given, forced, examples))
}

fn while_loop<B: Backend>(
    WhileLoop { cond, body, consts }: &WhileLoop,
    inputs: Vec<Batched<B>>,
    examples: usize,
    target: &Target<'_, B>,
) -> (HigherOrder, Vec<AnyTensor<B>>, Vec<bool>) {
    let consts = *consts;
    let given: Vec<_> = inputs.iter().map(|x| x.batched).collect();
    let carries = given.len() - consts;
    let (mut step, mut given) = looped(body, consts, given, carries, examples);
    let mut condition = batched(cond, &given, &[false], examples);
    if condition.flags[0] {
        // The loop runs until the condition is false for every example. The carry of a finished example stays unchanged.
        given[consts..].fill(true);
        let going = batched(cond, &given, &[true], examples).graph;
        condition = record(cond, &given, examples, |mut results, _, target| {
            let going = results.pop().unwrap_or_else(|| missing());
            let numbers = apply_one(&Primitive::Convert(DType::F32), [going.tensor], target);
            let largest = apply_one(&Primitive::Reduce(Reduction::Max, None), [numbers], target);
            let any = apply_one(&Primitive::BinaryScalar(Binary::Gt, ScalarIr::Float(0.5)), [largest], target);
            vec![Batched { tensor: any, batched: false }]
        });
        step = record(body, &given, examples, |results, arguments, target| {
            let values = arguments.iter().map(|x| x.tensor.clone()).collect();
            let going = going.program().run::<Traced>(values, target.device).pop().unwrap_or_else(|| missing());
            let next = results.into_iter().zip(&arguments[consts..]).map(|(new, old)| {
                let tensor = select(&going, expanded(new, examples, target), old.tensor.clone(), target);
                Batched { tensor, batched: true }
            });
            next.collect()
        });
    }
    let input = |(x, given): (Batched<B>, &bool)| if *given { expanded(x, examples, target) } else { x.tensor };
    let inputs = inputs.into_iter().zip(&given).map(input).collect();
    (HigherOrder::While(WhileLoop { cond: condition.graph, body: step.graph, consts }), inputs, step.flags)
}
