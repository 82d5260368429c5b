//! Forward-mode differentiation of higher-order operations.

use grove_backend::{AnyTensor, Backend, ops::Spec};

use super::{
    apply,
    flagged::{self, Flagged},
    passes::with_unused_input,
};
use crate::{
    Traced,
    jvp::{Dual, run},
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop, is_float},
    traced::{Recording, outputs_at},
};

/// Differentiates a graph whose arguments have tangents if `given` is true. The new graph takes the arguments and these
/// tangents, and returns the results and their tangents. A result has a tangent if it depends on a tangent, or if `forced` is
/// true.
fn tangents(graph: &SubGraph, given: &[bool], forced: &[bool]) -> Flagged {
    let recording = Recording::start(graph.types);
    let specs = graph.input_specs();
    let primals: Vec<_> = specs.iter().map(|spec| recording.input("primal", spec.clone())).collect();
    let tangent = |(spec, given): (&Spec, &bool)| given.then(|| recording.input("tangent", spec.clone()));
    let of_inputs: Vec<Option<AnyTensor<Traced>>> = specs.iter().zip(given).map(tangent).collect();
    let duals = primals.into_iter().zip(of_inputs).map(|(primal, tangent)| Dual { primal, tangent }).collect();
    let results = run::<Traced>(graph.program(), duals, &recording.device());
    let has = |(dual, forced): (&Dual<Traced>, &bool)| {
        matches!(dual.primal, AnyTensor::Float(_)) && (*forced || dual.tangent.is_some())
    };
    let flags: Vec<bool> = results.iter().zip(forced).map(has).collect();
    let primals: Vec<_> = results.iter().map(|dual| dual.primal.clone()).collect();
    let of_results = results.into_iter().zip(&flags).filter(|(_, has)| **has);
    let of_results = of_results.filter_map(|(dual, _)| dual.into_tangent());
    let graph = recording.finish(outputs_at("primal", primals).chain(outputs_at("tangent", of_results)));
    Flagged { graph: SubGraph::new(graph), flags }
}

/// Computes primals and tangents of the results of an operation. If `apart` is true, the primals are computed without the
/// tangents, so that a later pass can separate the two.
pub(crate) fn duals<B: Backend>(
    op: &HigherOrder,
    inputs: Vec<Dual<B>>,
    apart: bool,
    device: &B::Device,
) -> Vec<Option<Dual<B>>> {
    let primals: Vec<_> = inputs.iter().map(|dual| dual.primal.clone()).collect();
    let given: Vec<_> = inputs.iter().map(|dual| dual.tangent.is_some()).collect();
    let constant = |outputs: Vec<AnyTensor<B>>| outputs.into_iter().map(Dual::constant).map(Some).collect();
    if !given.contains(&true) {
        return constant(apply(op, primals, device));
    }
    let count = op.output_specs().len();
    let (op_with_tangents, arguments, flags) = match op {
        HigherOrder::Cond { branches } => cond(branches, inputs, &given[1..]),
        HigherOrder::Scan(op) => scan(op, inputs, &given),
        HigherOrder::While(op) => while_loop(op, inputs, &given),
        HigherOrder::CustomJvp { function, jvp, .. } => {
            let tangents = inputs.into_iter().filter_map(Dual::into_tangent);
            let arguments = primals.iter().cloned().chain(tangents).collect();
            let mut results = jvp.get().program().run::<B>(arguments, device);
            let mut tangents = results.split_off(count).into_iter();
            let values = if apart { apply(op, primals, device) } else { results };
            let specs = function.output_specs();
            let tangent = |(primal, spec)| {
                let tangent = if is_float(spec) { tangents.next() } else { None };
                Some(Dual { primal, tangent })
            };
            return values.into_iter().zip(&specs).map(tangent).collect();
        }
        HigherOrder::CustomVjp { name, .. } => panic!(
            "`{name}` has a rule for reverse mode only, and cannot be differentiated in forward mode: define it with \
             `custom_jvp`, or use reverse mode"
        ),
    };
    let mut results = apply(&op_with_tangents, arguments, device);
    // Both operations return the primals and tangents of the carry before those of the arrays.
    let carries = match op {
        HigherOrder::Scan(ScanLoop { carries, .. }) => *carries,
        _ => count,
    };
    let after_carry = carries + flags[..carries].iter().filter(|has| **has).count();
    let mut of_arrays = results.split_off(after_carry);
    let mut tangents = results.split_off(carries);
    tangents.extend(of_arrays.split_off(count - carries));
    let values: Vec<_> = results.into_iter().chain(of_arrays).collect();
    let values = if apart { apply(op, primals, device) } else { values };
    let mut tangents = tangents.into_iter();
    let dual = |(primal, has): (_, &bool)| Some(Dual { primal, tangent: if *has { tangents.next() } else { None } });
    values.into_iter().zip(&flags).map(dual).collect()
}

/// Returns the primals followed by the tangents of those for which `flags` is true. A missing tangent is filled with zeros.
fn flat<B: Backend>(inputs: Vec<Dual<B>>, flags: &[bool]) -> Vec<AnyTensor<B>> {
    let (mut values, mut tangents) = (Vec::new(), Vec::new());
    for (dual, has) in inputs.into_iter().zip(flags) {
        values.push(dual.primal.clone());
        if *has {
            tangents.extend(dual.into_tangent());
        }
    }
    values.extend(tangents);
    values
}

/// An operation on primals and tangents, its inputs, and for each result of the original operation true if it has a tangent.
type WithTangents<B> = (HigherOrder, Vec<AnyTensor<B>>, Vec<bool>);

fn cond<B: Backend>(branches: &[SubGraph], mut inputs: Vec<Dual<B>>, given: &[bool]) -> WithTangents<B> {
    let (branches, flags) = flagged::branches(branches, |branch, forced| tangents(branch, given, forced));
    let operands = inputs.split_off(1);
    let index = inputs.into_iter().map(|dual| dual.primal);
    (HigherOrder::Cond { branches }, index.chain(flat(operands, given)).collect(), flags)
}

/// Differentiates the body of a loop. Also returns, for each argument, true if it has a tangent.
fn looped(body: &SubGraph, consts: usize, carries: usize, given: &[bool]) -> (Flagged, Vec<bool>) {
    flagged::looped(body, consts, carries, given.to_vec(), |given, forced| tangents(body, given, forced))
}

fn scan<B: Backend>(op: &ScanLoop, inputs: Vec<Dual<B>>, given: &[bool]) -> WithTangents<B> {
    let (consts, carries) = (op.consts, op.carries);
    let (step, given) = looped(&op.body, consts, carries, given);
    let parts = [0..consts, consts..consts + carries, consts + carries..given.len()];
    let mut graph = (*step.graph).clone();
    graph.inputs = interleaved(&graph.inputs, &given, &parts);
    graph.outputs = interleaved(&graph.outputs, &step.flags, &[0..carries, carries..step.flags.len()]);
    let count = |range: &std::ops::Range<usize>| range.len() + given[range.clone()].iter().filter(|has| **has).count();
    let op = ScanLoop { body: SubGraph::new(graph), consts: count(&parts[0]), carries: count(&parts[1]), ..op.clone() };
    (HigherOrder::Scan(op), interleaved(&flat(inputs, &given), &given, &parts), step.flags)
}

fn while_loop<B: Backend>(op: &WhileLoop, inputs: Vec<Dual<B>>, given: &[bool]) -> WithTangents<B> {
    let WhileLoop { cond, body, consts } = op;
    let consts = *consts;
    let (step, given) = looped(body, consts, given.len() - consts, given);
    let parts = [0..consts, consts..given.len()];
    let specs = cond.input_specs();
    let mut condition = (**cond).clone();
    for (spec, _) in specs.into_iter().zip(&given).filter(|(_, has)| **has) {
        with_unused_input(&mut condition, spec);
    }
    condition.inputs = interleaved(&condition.inputs, &given, &parts);
    let mut graph = (*step.graph).clone();
    graph.inputs = interleaved(&graph.inputs, &given, &parts);
    let tangents_of_consts = given[..consts].iter().filter(|has| **has).count();
    let op =
        WhileLoop { cond: SubGraph::new(condition), body: SubGraph::new(graph), consts: consts + tangents_of_consts };
    (HigherOrder::While(op), interleaved(&flat(inputs, &given), &given, &parts), step.flags)
}

/// Sorts primals followed by tangents into parts: the primals of each part are followed by their tangents.
fn interleaved<T: Clone>(all: &[T], has: &[bool], parts: &[std::ops::Range<usize>]) -> Vec<T> {
    let (values, tangents) = all.split_at(has.len());
    let mut tangents = tangents.iter();
    let mut sorted = Vec::with_capacity(all.len());
    for part in parts {
        sorted.extend_from_slice(&values[part.clone()]);
        let count = has[part.clone()].iter().filter(|has| **has).count();
        sorted.extend(tangents.by_ref().take(count).cloned());
    }
    sorted
}
