//! Higher-order operations on any backend.

use grove_backend::{
    AnyTensor, Backend,
    ops::{Function, FunctionVjp, Outcome, Spec, Values, Wanted},
};
use std::any::TypeId;

use super::{gradient::Gradients, vjp};
use crate::{
    Primitive, Traced,
    custom::along_tape,
    plan::with_plan,
    same_type::same_type,
    sub_graph::{HigherOrder, ScanLoop, WhileLoop},
    target::{Target, keys, missing},
    traced::{TraceClient, TraceDevice, any, tensor_of},
};

/// Maximum number of rows of a scan that are unstacked at once.
const ROWS: usize = 1 << 10;

/// Returns true for [`Traced`] and the backends that decorate it.
pub(crate) fn is_traced<B: Backend>() -> bool {
    TypeId::of::<B::Device>() == TypeId::of::<TraceDevice>()
}

/// Returns the traced tensor inside a tensor of a backend that decorates [`Traced`], and true if a gradient flows through it.
pub(crate) fn to_traced<B: Backend>(x: AnyTensor<B>) -> (AnyTensor<Traced>, bool) {
    let (x, tracked) = B::into_innermost(x);
    match x.downcast::<AnyTensor<Traced>>() {
        Ok(x) => (*x, tracked),
        Err(_) => unreachable!("a backend with the devices of traces decorates that of traces"),
    }
}

/// Wraps a traced tensor for a backend that decorates [`Traced`].
pub(crate) fn from_traced<B: Backend>(x: AnyTensor<Traced>) -> AnyTensor<B> {
    match B::from_innermost(Box::new(x)) {
        Some(x) => x,
        None => unreachable!("a backend with the devices of traces decorates that of traces"),
    }
}

/// Runs an operation on a backend. In a trace the operation is recorded, and so is its derivative if the backend
/// differentiates.
pub(crate) fn apply<B: Backend>(op: &HigherOrder, inputs: Vec<AnyTensor<B>>, device: &B::Device) -> Vec<AnyTensor<B>> {
    let custom = matches!(op, HigherOrder::CustomJvp { .. } | HigherOrder::CustomVjp { .. });
    if !custom && !is_traced::<B>() {
        return evaluate(op, inputs, device);
    }
    given(B::run_function(op, inputs.into_iter().map(Some).collect()))
}

fn given<B: Backend>(values: Values<B>) -> Vec<AnyTensor<B>> {
    values.into_values().into_iter().map(|x| x.unwrap_or_else(|| missing())).collect()
}

impl Function for HigherOrder {
    type Vjp = vjp::Pullback;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        let record = |inputs| record(Primitive::HigherOrder(self.clone()), inputs, self.output_specs());
        if_recording(inputs, record).unwrap_or_else(|inputs| {
            let inputs = given(inputs);
            let device = inputs.first().map(AnyTensor::device).unwrap_or_default();
            evaluate(self, inputs, &device).into_iter().map(Some).collect()
        })
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, wanted: &Wanted) -> (Outcome<B>, vjp::Pullback) {
        vjp::forward(self, given(inputs), wanted, None)
    }

    fn run_differentiable<B: Backend>(&self, inputs: &Values<B>, tracked: &[bool]) -> Option<Values<B>> {
        let Self::CustomJvp { jvp, .. } = self else { return None };
        let outputs = self.output_specs().len();
        let results = along_tape(given(inputs.clone()), tracked, |primals, tangents| {
            let device = primals.first().map(AnyTensor::device).unwrap_or_default();
            let arguments = primals.into_iter().chain(tangents.into_iter().flatten()).collect();
            let mut results = jvp.get().program().run::<B>(arguments, &device);
            let tangents = results.split_off(outputs);
            let mut tangents = tangents.into_iter();
            let paired = results.into_iter().map(|y| {
                let tangent = matches!(y, AnyTensor::Float(_)).then(|| tangents.next()).flatten();
                (y, tangent)
            });
            paired.collect()
        });
        Some(results.into_iter().map(Some).collect())
    }
}

/// An operation on an autodiff backend, with the derivatives of its sub-graphs.
#[derive(Clone, Debug)]
pub(super) struct WithGradients {
    pub op: HigherOrder,
    pub gradients: Gradients,
}

impl Function for WithGradients {
    type Vjp = vjp::Pullback;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        B::run_function(&self.op, inputs)
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, wanted: &Wanted) -> (Outcome<B>, vjp::Pullback) {
        vjp::forward(&self.op, given(inputs), wanted, Some(&self.gradients))
    }
}

impl FunctionVjp for vjp::Pullback {
    fn vjp<B: Backend>(&self, saved: Values<B>, grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        self.pull(given(saved), grads.into_values()).into_iter().collect()
    }
}

/// Calls a function that records an operation if the backend is [`Traced`]. Otherwise returns the inputs as the error.
pub(crate) fn if_recording<B: Backend>(
    inputs: Values<B>,
    record: impl FnOnce(Values<Traced>) -> Values<Traced>,
) -> Result<Values<B>, Values<B>> {
    let outputs = record(same_type(inputs)?);
    Ok(same_type(outputs).unwrap_or_else(|_| unreachable!("the inputs are of the same type")))
}

/// Records a primitive with the given types of outputs in the trace of its inputs.
fn record(primitive: Primitive, inputs: Values<Traced>, outputs: Vec<Spec>) -> Values<Traced> {
    let tensors: Vec<_> = given(inputs).into_iter().map(tensor_of).collect();
    let client = tensors.first().map_or_else(|| TraceClient::of(TraceDevice::default()), |x| x.client);
    client.primitive(primitive, tensors, outputs).into_iter().map(|x| Some(any(x))).collect()
}

/// Records a primitive whose outputs have the types of its inputs. Returns the inputs as the error if the backend computes
/// values.
pub(super) fn record_like_inputs<B: Backend>(primitive: Primitive, inputs: Values<B>) -> Result<Values<B>, Values<B>> {
    if_recording(inputs, |inputs| {
        let spec = |x: &AnyTensor<Traced>| Spec { shape: x.shape(), dtype: x.dtype() };
        let specs = inputs.clone().into_values().iter().flatten().map(spec).collect();
        record(primitive, inputs, specs)
    })
}

/// Returns the index of the branch for a boolean or an integer.
pub(super) fn branch_of<B: Backend>(index: AnyTensor<B>, branches: usize) -> usize {
    let is_bool = matches!(index, AnyTensor::Bool(_));
    let data = index.into_data();
    let index = if is_bool { data.iter::<bool>().next().map(i64::from) } else { data.iter::<i64>().next() };
    index.unwrap_or_default().clamp(0, branches as i64 - 1) as usize
}

/// Returns the value of a condition `[1]`.
pub(super) fn holds<B: Backend>(condition: AnyTensor<B>) -> bool {
    branch_of(condition, 2) == 1
}

/// Runs an operation. Loops run by their [plan](crate::plan) if there is one that fits, otherwise step by step.
fn evaluate<B: Backend>(op: &HigherOrder, inputs: Vec<AnyTensor<B>>, device: &B::Device) -> Vec<AnyTensor<B>> {
    let target = Target::<B>::new(device);
    with_plan(op, &target, |plan| match plan.filter(|plan| plan.takes(&inputs)) {
        Some(plan) => plan.run(inputs, keys().as_ref(), &target),
        None => step_by_step(op, inputs, &target),
    })
}

/// Runs an operation step by step: conditions are read, and loops run on the host.
pub(crate) fn step_by_step<B: Backend>(
    op: &HigherOrder,
    mut inputs: Vec<AnyTensor<B>>,
    target: &Target<'_, B>,
) -> Vec<AnyTensor<B>> {
    let device = target.device;
    match op {
        HigherOrder::Cond { branches } => {
            let operands = inputs.split_off(1);
            let index = inputs.pop().unwrap_or_else(|| missing());
            branches[branch_of(index, branches.len())].program().run(operands, device)
        }
        HigherOrder::While(WhileLoop { cond, body, consts }) => {
            let mut carry = inputs.split_off(*consts);
            let (mut cond, mut body) = (cond.program().on(target), body.program().on(target));
            let with_consts = |carry: Vec<_>| inputs.iter().cloned().chain(carry).collect();
            loop {
                let mut condition = cond.run(with_consts(carry.clone()));
                if !holds(condition.pop().unwrap_or_else(|| missing())) {
                    return carry;
                }
                carry = body.run(with_consts(carry));
            }
        }
        HigherOrder::Scan(scan) => steps(scan, inputs, target),
        HigherOrder::CustomJvp { function, .. } | HigherOrder::CustomVjp { function, .. } => {
            function.program().run(inputs, device)
        }
    }
}

/// Runs the steps of a scan on the host. The inputs are constants, the carry and arrays.
fn steps<B: Backend>(scan: &ScanLoop, mut inputs: Vec<AnyTensor<B>>, target: &Target<'_, B>) -> Vec<AnyTensor<B>> {
    let ScanLoop { body, length, reverse, .. } = scan;
    let (length, reverse, carries) = (*length, *reverse, scan.carries);
    let mut carry = inputs.split_off(scan.consts);
    let xs = carry.split_off(carries);
    let mut body_on = body.program().on(target);
    // Handles take more memory than small rows, so only some rows are unstacked at a time.
    let mut parts: Vec<Vec<AnyTensor<B>>> = vec![Vec::new(); body.outputs.len() - carries];
    // Under autodiff, the gradient of each slice of rows would have the size of the whole array.
    let at_once = if B::ad_enabled(target.device) { length } else { ROWS };
    for first in (0..length).step_by(at_once.max(1)) {
        let count = at_once.min(length - first);
        let range = if reverse { length - first - count..length - first } else { first..first + count };
        let rows = xs.iter().map(|x| if count == length { x.clone() } else { x.clone().rows(range.clone()) });
        let mut rows: Vec<_> = rows.map(|x| x.unstack().into_iter()).collect();
        let mut ys: Vec<Vec<AnyTensor<B>>> = vec![Vec::with_capacity(count); parts.len()];
        for _ in 0..count {
            let step = rows.iter_mut().map(|rows| {
                let row = if reverse { rows.next_back() } else { rows.next() };
                row.unwrap_or_else(|| missing())
            });
            let arguments = inputs.iter().cloned().chain(carry).chain(step).collect();
            carry = body_on.run(arguments);
            for (ys, y) in ys.iter_mut().zip(carry.split_off(carries)) {
                ys.push(y);
            }
        }
        for (parts, ys) in parts.iter_mut().zip(ys) {
            parts.push(joined(ys, reverse, AnyTensor::stack));
        }
    }
    carry.extend(parts.into_iter().map(|parts| joined(parts, reverse, |parts| AnyTensor::cat(parts, 0))));
    carry
}

/// Joins the results of the steps in the order of the rows.
fn joined<T>(mut ys: Vec<T>, reverse: bool, join: impl FnOnce(Vec<T>) -> T) -> T {
    if reverse {
        ys.reverse();
    }
    join(ys)
}
