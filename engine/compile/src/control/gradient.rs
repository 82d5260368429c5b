//! Gradients of functions that become sub-graphs, computed by the tape of the autodiff backend.
//!
//! The function runs on the tape, so that its effects on the tape (`detach`) are the same as without the sub-graph. The graph
//! of its values does not record these effects.

use grove_backend::{AnyTensor, Autodiff, Backend, ops::Spec};
use grove_transform::vjp;
use grove_tree::{AnyArray, Tree};
use std::any::TypeId;

use super::{
    from_traced,
    nested::{LeafSpec, arrays_of, filled},
    to_traced,
};
use crate::{
    Graph, Traced,
    same_type::same_type,
    sub_graph::{SubGraph, is_float},
    target::missing,
    traced::{Recording, TraceDevice, outputs_at},
};

/// Derivatives of an operation's sub-graphs. Each graph takes the arguments and the cotangents of floating-point results, and
/// returns the gradients of the arguments for which `of` is true.
#[derive(Clone, Debug)]
pub(super) struct Gradients {
    pub graphs: Vec<SubGraph>,
    pub of: Vec<bool>,
}

/// A traced derivative and the arrays that the function captured. The graph takes the arguments, the cotangents of
/// floating-point results and the captured arrays, and returns the gradients of floating-point arguments.
pub(super) type Raw = (Graph, Vec<AnyTensor<Traced>>);

/// Traces the derivative of a function inside a trace. Returns `None` unless the backend is `Autodiff<Traced>` or
/// `Autodiff<Autodiff<Traced>>`.
#[track_caller]
pub(super) fn gradient<B: Backend, T: Tree<B>, O: Tree<B>>(
    around: TraceDevice,
    args: &T,
    leaves: &[LeafSpec],
    f: impl Fn(T) -> O,
) -> Option<Raw> {
    let backend = TypeId::of::<B>();
    if backend == TypeId::of::<Autodiff<Traced>>() {
        return Some(on_tape::<Traced, B, T, O>(around, args, leaves, f));
    }
    if backend == TypeId::of::<Autodiff<Autodiff<Traced>>>() {
        return Some(on_tape::<Autodiff<Traced>, B, T, O>(around, args, leaves, f));
    }
    None
}

/// [`gradient`] for `B = Autodiff<X>`.
#[track_caller]
fn on_tape<X: Backend, B: Backend, T: Tree<B>, O: Tree<B>>(
    around: TraceDevice,
    args: &T,
    leaves: &[LeafSpec],
    f: impl Fn(T) -> O,
) -> Raw {
    let recording = Recording::nested(around);
    let input = |spec: &Spec| recording.input("argument", spec.clone());
    let inputs: Vec<_> = leaves.iter().filter(|leaf| leaf.present).map(|leaf| input(&leaf.spec)).collect();
    let floats = inputs.iter().filter(|x| matches!(x, AnyTensor::Float(_)));
    let floats: Vec<AnyArray<X>> = floats.map(|x| AnyArray::present(from_traced(x.clone()))).collect();
    let run = |floats: Vec<AnyArray<Autodiff<X>>>| -> Vec<AnyArray<Autodiff<X>>> {
        let mut floats = floats.into_iter().filter_map(AnyArray::into_value);
        let argument = |x: &AnyTensor<Traced>| match x {
            AnyTensor::Float(_) => of_equal_backend::<_, B>(floats.next().unwrap_or_else(|| missing())),
            x => from_traced(x.clone()),
        };
        let arguments: Vec<_> = inputs.iter().map(argument).collect();
        let results = arrays_of(&f(filled(args.clone(), leaves, arguments)));
        let results = results.into_iter().filter(|y| matches!(y, AnyTensor::Float(_)));
        results.map(|y| AnyArray::present(of_equal_backend(y))).collect()
    };
    let (results, pullback) = vjp::<X, _, _, _>(&floats, run);
    let spec = |leaf: &AnyArray<X>| Spec { shape: leaf.shape().to_vec().into(), dtype: leaf.dtype() };
    let grads = results.iter().map(|leaf| AnyArray::present(from_traced(input(&spec(leaf))))).collect();
    let grads = pullback(grads).into_iter().filter_map(AnyArray::into_value);
    recording.finish_nested(outputs_at("gradient", grads.map(|grad| to_traced::<X>(grad).0)))
}

/// Converts a tensor between two backends that are equal at run time.
fn of_equal_backend<B: Backend, C: Backend>(x: AnyTensor<B>) -> AnyTensor<C> {
    same_type(x).unwrap_or_else(|_| unreachable!("the backends were compared"))
}

/// Returns true for each argument that is floating-point.
pub(super) fn floats(specs: &[Spec]) -> Vec<bool> {
    specs.iter().map(is_float).collect()
}

/// Moves the last `captured` inputs of a derivative in front of the cotangents, which follow the first `arguments` inputs.
pub(super) fn with_gradients_last(mut graph: Graph, arguments: usize, captured: usize) -> SubGraph {
    graph.inputs[arguments..].rotate_right(captured);
    SubGraph::new(graph)
}

/// Reorders the derivative of the body of a scan. The inputs of `raw` are the carry, one step of the arrays, the captured
/// arrays, and the cotangents of both results. The inputs of the returned graph are the constants (the captured arrays first),
/// the changing part of the carry, the arrays, and the cotangents of the remaining results. `kept` is true for the part of the
/// carry that does not change.
pub(super) fn of_body(raw: SubGraph, captured: usize, kept: &[bool], xs: usize, ys: &[Spec]) -> Gradients {
    let carries = kept.len();
    let specs = raw.input_specs();
    let of_captured = &specs[carries + xs..carries + xs + captured];
    let in_order = |keep: bool| (0..carries).filter(move |i| kept[*i] == keep);
    let (constants, changing): (Vec<_>, Vec<_>) = (in_order(true).collect(), in_order(false).collect());
    let recording = Recording::start(raw.types);
    let input = |spec: &Spec| recording.input("argument", spec.clone());
    let captured: Vec<_> = of_captured.iter().map(input).collect();
    let mut carry: Vec<Option<AnyTensor<Traced>>> = vec![None; carries];
    constants.iter().chain(&changing).for_each(|i| carry[*i] = Some(input(&specs[*i])));
    let arrays: Vec<_> = specs[carries..carries + xs].iter().map(input).collect();
    let mut grads: Vec<Option<AnyTensor<Traced>>> = vec![None; carries];
    changing.iter().filter(|i| is_float(&specs[**i])).for_each(|i| grads[*i] = Some(input(&specs[*i])));
    let of_ys: Vec<_> = ys.iter().filter(|spec| is_float(spec)).map(input).collect();
    let of_carry = (0..carries).filter(|i| is_float(&specs[*i])).map(|i| match (&grads[i], &carry[i]) {
        // Only the steps contribute to the gradient of a constant, so its cotangent is zero.
        (None, Some(x)) => x.zeros_like(),
        (grad, _) => grad.clone().unwrap_or_else(|| missing()),
    });
    let of_carry: Vec<_> = of_carry.collect();
    let carry = carry.into_iter().map(|x| x.unwrap_or_else(|| missing()));
    let arguments = carry.chain(arrays).chain(captured).chain(of_carry).chain(of_ys).collect();
    let results = raw.program().run::<Traced>(arguments, &recording.device());
    let position = |i: usize| (0..i).filter(|j| is_float(&specs[*j])).count();
    let order = constants.iter().chain(&changing).copied().chain(carries..carries + xs);
    let order: Vec<_> = order.collect();
    let wanted = order.iter().filter(|i| is_float(&specs[**i])).map(|i| results[position(*i)].clone());
    let graph = recording.finish(outputs_at("gradient", wanted));
    let of = of_captured.iter().map(|_| false).chain(order.iter().map(|i| is_float(&specs[*i]))).collect();
    Gradients { graphs: vec![SubGraph::new(graph)], of }
}
