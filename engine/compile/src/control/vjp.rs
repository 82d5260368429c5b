//! Reverse-mode differentiation of higher-order operations.
//!
//! The derivative of a user function is traced together with the function (see `gradient`). The derivative of any other
//! sub-graph follows from its operations: the graph runs on `Autodiff<Traced>`, and its backward pass is recorded as a new
//! graph. Both recompute the values that they need from the sub-graph's arguments. An operation therefore stores only its
//! arguments, and a scan also the carries of its steps.

use grove_backend::{
    AnyTensor, Autodiff, Backend,
    ops::{Outcome, Spec, Wanted},
};
use grove_transform::vjp;
use grove_tree::AnyArray;

use super::{apply, gradient::Gradients};
use crate::{
    Primitive, Traced,
    eval::apply_one,
    primitive::Binary,
    sub_graph::{HigherOrder, LazyGraph, ScanLoop, SubGraph, is_float},
    target::{Target, missing},
    traced::{Recording, outputs_at},
};

/// Derivative of an operation.
#[derive(Clone, Debug)]
pub struct Pullback(Rule);

#[derive(Clone, Debug)]
enum Rule {
    /// An operation from the inputs and the cotangents of floating-point outputs to the gradients of the inputs at `positions`.
    Cond { op: HigherOrder, outputs: Vec<Spec>, positions: Vec<usize> },
    /// A scan in the opposite direction over constants, stored carries, arrays and cotangents.
    Scan(Box<ScanPullback>),
    /// A graph from residuals and the cotangents of floating-point outputs to the gradients of floating-point inputs.
    Custom { backward: LazyGraph, outputs: Vec<Spec>, positions: Vec<usize> },
    /// A `while_loop`, which has no reverse mode.
    While,
}

#[derive(Clone, Debug)]
struct ScanPullback {
    op: HigherOrder,
    /// Types of the results.
    outputs: Vec<Spec>,
    /// Index and type of each constant whose gradient is wanted.
    consts: Vec<(usize, Spec)>,
    /// Number of constants and number of arrays in the carry.
    counts: [usize; 2],
    /// Positions of the inputs whose gradients the operation returns.
    positions: Vec<usize>,
}

/// Runs an operation. Returns its outputs and residuals, and its derivative. As for functions with a reverse-mode rule outside
/// of sub-graphs, the outputs are those of the forward passes, whose operations have further derivatives.
pub(super) fn forward<B: Backend>(
    op: &HigherOrder,
    inputs: Vec<AnyTensor<B>>,
    wanted: &Wanted,
    gradients: Option<&Gradients>,
) -> (Outcome<B>, Pullback) {
    let device = inputs.first().map(AnyTensor::device).unwrap_or_default();
    let outcome = |outputs: Vec<AnyTensor<B>>, saved: Vec<AnyTensor<B>>| Outcome {
        outputs: outputs.into_iter().map(Some).collect(),
        saved: saved.into_iter().map(Some).collect(),
    };
    let is_wanted = |position: usize| wanted.get(position).is_some();
    let (outcome, rule) = match op {
        HigherOrder::Cond { branches } => {
            let outputs = apply(&op.with_forward_passes(), inputs.clone(), &device);
            let (branches, flags) = match gradients {
                Some(Gradients { graphs, of }) => (graphs.clone(), of.clone()),
                None => {
                    let flags: Vec<_> = (1..inputs.len()).map(is_wanted).collect();
                    (branches.iter().map(|branch| differentiated(branch, &flags)).collect(), flags)
                }
            };
            let positions = (1..inputs.len()).filter(|position| flags[position - 1]).collect();
            let pullback = Rule::Cond { op: HigherOrder::Cond { branches }, outputs: op.output_specs(), positions };
            (outcome(outputs, inputs), pullback)
        }
        HigherOrder::Scan(scan) => {
            let ScanLoop { body, consts, carries, .. } = scan;
            let saving = HigherOrder::Scan(ScanLoop { body: saving(body, *consts, *carries), ..scan.clone() });
            let mut outputs = apply(&saving.with_forward_passes(), inputs.clone(), &device);
            let saved = outputs.split_off(body.outputs.len());
            let kept = [&inputs[..*consts], &saved[..], &inputs[consts + carries..]].concat();
            let specs = body.input_specs();
            let in_carry = |i: usize| (*consts..consts + carries).contains(&i);
            // A carry passes gradients from step to step, even if the gradient of its initial value is not wanted.
            let flag = |i: usize| is_float(&specs[i]) && (is_wanted(i) || in_carry(i));
            let pullback = match gradients {
                Some(Gradients { graphs, of }) => scan_pullback(scan, of, &graphs[0]),
                None => {
                    let flags: Vec<_> = (0..specs.len()).map(flag).collect();
                    scan_pullback(scan, &flags, &differentiated(body, &flags))
                }
            };
            (outcome(outputs, kept), pullback)
        }
        HigherOrder::While(_) => (outcome(apply(op, inputs, &device), Vec::new()), Rule::While),
        HigherOrder::CustomVjp { forward, backward, function, .. } => {
            let specs = function.output_specs();
            let arguments = function.input_specs();
            let positions = (0..arguments.len()).filter(|i| is_float(&arguments[*i])).collect();
            let mut outputs = forward.program().run(inputs, &device);
            let saved = outputs.split_off(specs.len());
            (outcome(outputs, saved), Rule::Custom { backward: backward.clone(), outputs: specs, positions })
        }
        HigherOrder::CustomJvp { .. } => unreachable!("its derivative is that of its rule's operations"),
    };
    (outcome, Pullback(rule))
}

impl Pullback {
    /// Returns the gradients of the inputs, by position.
    pub(super) fn pull<B: Backend>(
        &self,
        saved: Vec<AnyTensor<B>>,
        grads: Vec<Option<AnyTensor<B>>>,
    ) -> Vec<Option<AnyTensor<B>>> {
        let device = saved.iter().chain(grads.iter().flatten()).next().map(AnyTensor::device).unwrap_or_default();
        let zeros = |spec: &Spec| AnyTensor::Float(B::float_zeros(spec.shape.clone(), &device, spec.dtype.into()));
        let complete = |outputs: &[Spec]| {
            let pairs = outputs.iter().zip(grads).filter(|(spec, _)| is_float(spec));
            pairs.map(|(spec, grad)| grad.unwrap_or_else(|| zeros(spec))).collect::<Vec<_>>()
        };
        match &self.0 {
            Rule::Cond { op, outputs, positions } => {
                let inputs = saved.into_iter().chain(complete(outputs)).collect();
                at(positions, apply(op, inputs, &device))
            }
            Rule::Custom { backward, outputs, positions } => {
                let inputs = saved.into_iter().chain(complete(outputs)).collect();
                at(positions, backward.get().program().run(inputs, &device))
            }
            Rule::Scan(scan) => {
                let ScanPullback { op, outputs, consts, counts: [all_consts, carries], positions } = &**scan;
                let mut carry = complete(outputs);
                let of_carry = outputs[..*carries].iter().filter(|spec| is_float(spec)).count();
                let of_ys = carry.split_off(of_carry);
                let sums = consts.iter().map(|(_, spec)| zeros(spec));
                let (constants, arrays) = saved.split_at(*all_consts);
                let inputs =
                    constants.iter().cloned().chain(carry).chain(sums).chain(arrays.iter().cloned()).chain(of_ys);
                at(positions, apply(op, inputs.collect(), &device))
            }
            Rule::While => panic!(
                "`while_loop` in a trace cannot be differentiated in reverse mode, because the number of its steps is \
                 unknown: use `scan`, or `detach` its result"
            ),
        }
    }
}

/// Places values at positions of a list.
fn at<B: Backend>(positions: &[usize], values: Vec<AnyTensor<B>>) -> Vec<Option<AnyTensor<B>>> {
    let mut list = vec![None; positions.iter().map(|position| position + 1).max().unwrap_or_default()];
    for (position, value) in positions.iter().zip(values) {
        list[*position] = Some(value);
    }
    list
}

/// Differentiates a graph. The result takes the arguments and the cotangents of floating-point results, and returns the
/// gradients of the wanted arguments.
fn differentiated(graph: &SubGraph, wanted: &[bool]) -> SubGraph {
    let recording = Recording::start(graph.types);
    let inputs = graph.input_specs();
    let inputs: Vec<_> = inputs.into_iter().map(|spec| recording.input("argument", spec)).collect();
    let is_leaf = |i: usize| wanted[i] && matches!(inputs[i], AnyTensor::Float(_));
    let leaf = |i: usize| AnyArray::present(inputs[i].clone());
    let leaves: Vec<AnyArray<Traced>> = (0..inputs.len()).filter(|i| is_leaf(*i)).map(leaf).collect();
    let device = recording.device();
    let run = |leaves: Vec<AnyArray<Autodiff<Traced>>>| -> Vec<AnyArray<Autodiff<Traced>>> {
        let mut leaves = leaves.into_iter().filter_map(AnyArray::into_value);
        let argument = |(i, x): (usize, &AnyTensor<Traced>)| match is_leaf(i) {
            true => leaves.next().unwrap_or_else(|| missing()),
            false => super::from_traced(x.clone()),
        };
        let arguments = inputs.iter().enumerate().map(argument).collect();
        let results = graph.program().run::<Autodiff<Traced>>(arguments, &device);
        results.into_iter().filter(|x| matches!(x, AnyTensor::Float(_))).map(AnyArray::present).collect()
    };
    let (_, pullback) = vjp::<Traced, _, _, _>(&leaves, run);
    let of_results = graph.output_specs().into_iter().filter(is_float);
    let grads = of_results.map(|spec| AnyArray::present(recording.input("gradient", spec))).collect();
    let grads = pullback(grads).into_iter().filter_map(AnyArray::into_value);
    SubGraph::new(recording.finish(outputs_at("gradient", grads)))
}

/// Adds the carry before each step to the results of the body of a scan.
fn saving(body: &SubGraph, consts: usize, carries: usize) -> SubGraph {
    let mut graph = (**body).clone();
    let carry = graph.inputs[consts..consts + carries].iter().map(|(_, var)| ("saved".to_owned(), *var));
    graph.outputs.extend(carry);
    SubGraph::new(graph)
}

/// Derives the pullback of a scan from the derivative of its body. `flags` are the arguments with a gradient, which include the
/// whole floating-point carry.
fn scan_pullback(scan: &ScanLoop, flags: &[bool], gradient: &SubGraph) -> Rule {
    let ScanLoop { body, length, reverse, .. } = scan;
    let (consts, carries) = (scan.consts, scan.carries);
    let specs = body.input_specs();
    let of = |range: std::ops::Range<usize>| range.filter(|i| flags[*i]).collect::<Vec<_>>();
    let (of_consts, of_carry, of_xs) = (of(0..consts), of(consts..consts + carries), of(consts + carries..specs.len()));
    let results = body.output_specs();
    let of_ys: Vec<_> = results[carries..].iter().filter(|spec| is_float(spec)).cloned().collect();

    let recording = Recording::start(body.types);
    let inputs = |specs: &mut dyn Iterator<Item = Spec>| -> Vec<AnyTensor<Traced>> {
        specs.map(|spec| recording.input("argument", spec)).collect()
    };
    let each = |positions: &[usize]| positions.iter().map(|i| specs[*i].clone()).collect::<Vec<_>>();
    let constants = inputs(&mut specs[..consts].iter().cloned());
    let grads = inputs(&mut each(&of_carry).into_iter());
    let sums = inputs(&mut each(&of_consts).into_iter());
    let arrays = inputs(&mut specs[consts..].iter().cloned());
    let grads_of_ys = inputs(&mut of_ys.iter().cloned());
    let arguments = constants.into_iter().chain(arrays).chain(grads).chain(grads_of_ys).collect();
    let mut results = gradient.program().run::<Traced>(arguments, &recording.device()).into_iter();
    let of_constants: Vec<_> = results.by_ref().take(of_consts.len()).collect();
    let carry = results.by_ref().take(of_carry.len()).collect::<Vec<_>>();
    let device = recording.device();
    let target = Target::<Traced>::new(&device);
    let add = |(sum, grad)| apply_one(&Primitive::Binary(Binary::Add), [sum, grad], &target);
    let sums = sums.into_iter().zip(of_constants).map(add);
    let graph = recording.finish(outputs_at("gradient", carry.into_iter().chain(sums).chain(results)));
    let op = HigherOrder::Scan(ScanLoop {
        body: SubGraph::new(graph),
        length: *length,
        reverse: !reverse,
        consts,
        carries: of_carry.len() + of_consts.len(),
    });
    let outputs = scan.output_specs();
    let positions = [of_carry, of_consts.clone(), of_xs].concat();
    let consts_wanted = of_consts.into_iter().map(|i| (i, specs[i].clone())).collect();
    Rule::Scan(Box::new(ScanPullback { op, outputs, consts: consts_wanted, counts: [consts, carries], positions }))
}
