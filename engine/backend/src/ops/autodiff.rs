//! The differentiating backend: one method that records any operation with its derivative.

use burn::tensor::{
    DType, IntDType, TensorData, TensorMetadata,
    backend::{AutodiffBackend, ExecutionError},
    ops::{FloatTensor, IntTensor},
};
use burn_autodiff::{
    NodeId,
    checkpoint::{
        base::Checkpointer, retro_forward::RetroForward, state::BackwardStates, strategy::CheckpointStrategy,
    },
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use grove_communicator::Communicator;
use std::{any::Any, marker::PhantomData, sync::Arc};

use super::{
    AnyTensor, Backend, Differentiation, Function, FunctionVjp, Operation, Outcome, Residual, SampleOptions,
    SampledPrimitives, Spec, Values, Wanted, function,
    tracked::{inner, inner_value, lifted, register_grad, untracked},
};
use crate::{Autodiff, autodiff::captured};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    const FUSES: bool = B::FUSES;
    const BROKEN_FUSED_GEMV: bool = B::BROKEN_FUSED_GEMV;
    const MIXED_DTYPE_WEIGHTS: bool = B::MIXED_DTYPE_WEIGHTS;
    const DIVIDES_BY_ZERO: bool = true;
    const POOLS_NAN: bool = true;
    const SAMPLES: bool = B::SAMPLES;
    const LAZY: bool = B::LAZY;

    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        B::computes_in(device, dtype)
    }

    fn has_values(device: &Self::Device) -> bool {
        B::has_values(device)
    }

    fn reduces(device: &Self::Device, comm: &Communicator) -> bool {
        B::reduces(device, comm)
    }

    fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
        let inputs = in_place(inputs);
        let kind = operation.differentiation();
        if kind == Differentiation::None {
            return untracked(B::run(operation, inner(inputs), &[]).outputs).into();
        }
        // If this backend is itself differentiated, the values that the derivative uses must be differentiable too.
        if kind == Differentiation::Composed || needs.contains(&true) && operation.saves() {
            return operation.compose_differentiable(inputs, needs);
        }
        if kind == Differentiation::AllOutputs {
            return function::run(&AllOutputs(operation.clone()), inputs).into();
        }
        let is_parent = |&i: &usize| matches!(inputs.get(i), Some(AnyTensor::Float(_)));
        let parents: Vec<_> = (0..inputs.len().min(operation.differentiable_inputs())).filter(is_parent).collect();
        match parents.is_empty() {
            true => untracked(B::run(operation, inner(inputs), &[]).outputs).into(),
            false => record(operation, inputs, parents),
        }
    }

    fn sample(
        logits: FloatTensor<Self>,
        occurred: Option<IntTensor<Self>>,
        options: SampleOptions,
    ) -> Option<SampledPrimitives<Self>> {
        B::sample(logits.primitive, occurred, options)
    }

    fn run_function<F: Function>(function: &F, inputs: Values<Self>) -> Values<Self> {
        function::run(function, in_place(inputs))
    }

    fn read(x: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        B::read(x.primitive)
    }

    fn argtopk(x: FloatTensor<Self>, dim: usize, k: usize, dtype: IntDType) -> IntTensor<Self> {
        B::argtopk(x.primitive, dim, k, dtype)
    }

    fn in_place_of(x: AnyTensor<Self>) -> AnyTensor<Self> {
        match x {
            AnyTensor::Float(x) => AnyTensor::Float(captured::used::<B, _>(x)),
            x => x,
        }
    }

    fn into_innermost(x: AnyTensor<Self>) -> (Box<dyn Any>, bool) {
        let is_tracked = matches!(&x, AnyTensor::Float(x) if x.is_tracked());
        let (x, is_tracked_below) = B::into_innermost(inner_value(x));
        (x, is_tracked || is_tracked_below)
    }

    fn from_innermost(x: Box<dyn Any>) -> Option<AnyTensor<Self>> {
        Some(lifted(B::from_innermost(x)?))
    }
}

/// An operation that is differentiated for all outputs together, as a function. It has no residuals.
#[derive(Clone, Debug)]
struct AllOutputs(Operation);

impl Function for AllOutputs {
    type Vjp = Self;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        B::run(&self.0, inputs, &[]).outputs
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, wanted: &Wanted) -> (Outcome<B>, Self) {
        (B::run(&self.0, inputs, &wanted.all_needs()), self.clone())
    }
}

impl FunctionVjp for AllOutputs {
    fn vjp<B: Backend>(&self, saved: Values<B>, grads: Values<B>, wanted: &Wanted) -> Values<B> {
        B::run_vjp(&self.0, saved, grads, wanted)
    }
}

/// Returns the replacements of an operation's inputs; see [`Backend::in_place_of`].
fn in_place<B: Backend>(inputs: Values<B>) -> Values<B> {
    if !captured::is_capturing() {
        return inputs;
    }
    let device = inputs.given_device().cloned();
    let values = inputs.into_values().into_iter().map(|x| x.map(B::in_place_of));
    values.collect::<Values<B>>().on_device(device)
}

/// A tensor in the graph.
type Tracked<B> = FloatTensor<Autodiff<B>>;

/// A residual, held until the backward pass.
#[derive(Clone, Debug)]
enum Held<B: Backend> {
    /// Retained or recomputed by its node.
    Checkpoint(NodeId),
    /// Retained.
    Value(Option<AnyTensor<B>>),
}

/// Number of parents of a recorded operation's node: the most floating-point inputs that an operation can have.
const PARENTS: usize = 6;

/// Backward step of an operation.
#[derive(Debug)]
struct CustomVjp {
    operation: Operation,
    /// Input positions of the first parents. The others are untracked.
    parents: Vec<usize>,
    wanted: Wanted,
}

impl<B: Backend> Backward<B, PARENTS> for CustomVjp {
    /// Residuals.
    type State = Vec<Held<B>>;

    fn backward(self, ops: Ops<Self::State, PARENTS>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let mut given: Values<B> = Values::floats([grads.consume::<B>(&ops.node)]);
        let retrieve = |held| match held {
            Held::Checkpoint(id) => Some(AnyTensor::Float(checkpointer.retrieve_node_output::<FloatTensor<B>>(id))),
            Held::Value(value) => value,
        };
        let residuals = ops.state.into_iter().map(retrieve).collect();
        if self.operation.differentiation() == Differentiation::Accumulating
            && let Some(node) = &ops.parents[0]
        {
            // Gradients are removed by a tensor of their node, whose values do not matter.
            let rc = Arc::new(node.id);
            let place = Tracked::<B> { primitive: given.float(0).clone(), node: node.clone(), rc };
            given = given.with_optional(grads.remove::<B>(&place).map(AnyTensor::Float));
        }
        let mut results = B::run_vjp(&self.operation, residuals, given, &self.wanted);
        for (parent, position) in ops.parents.into_iter().zip(self.parents) {
            if let Some(parent) = parent {
                register_grad(grads, parent.id, &mut results, position, &self.wanted);
            }
        }
    }
}

/// Recomputes the output of a [memory-bound](Differentiation::MemoryBound) operation.
#[derive(Debug)]
struct Recompute<B> {
    operation: Operation,
    input: NodeId,
    backend: PhantomData<B>,
}

impl<B: Backend> RetroForward for Recompute<B> {
    fn forward(&self, states: &mut BackwardStates, out: NodeId) {
        let x = states.get_state::<FloatTensor<B>>(&self.input);
        let mut outputs = B::run(&self.operation, Values::floats([x]), &[]).outputs;
        states.save(out, outputs.take_float(0));
    }
}

/// Runs an operation on the inner backend and records it in the graph with its residuals. `parents` are the positions of
/// the inputs that can have a gradient.
fn record<B: Backend, C: CheckpointStrategy>(
    operation: &Operation,
    inputs: Values<Autodiff<B, C>>,
    parents: Vec<usize>,
) -> Outcome<Autodiff<B, C>> {
    let kind = operation.differentiation();
    // The inputs' nodes must stay alive until the operation is in the graph: a backward pass on another thread, even of
    // another model, removes nodes without other owners.
    let _keep_alive: Vec<_> = parents.iter().map(|&i| inputs.float(i).rc.clone()).collect();
    assert!(parents.len() <= PARENTS, "an operation of {} floating-point inputs has too many to record", parents.len());
    let first = parents[0];
    let untracked_node = <Autodiff<B, C> as AutodiffBackend>::from_inner(inputs.float(first).primitive.clone()).node;
    let node = |position: &usize| inputs.float(*position).node.clone();
    let nodes = std::array::from_fn(|i| parents.get(i).map_or_else(|| untracked_node.clone(), node));
    let mut wanted = vec![None; inputs.len()];
    for x in parents.iter().filter(|&&i| inputs.float(i).is_tracked()) {
        let primitive = &inputs.float(*x).primitive;
        wanted[*x] = Some(Spec { shape: primitive.shape(), dtype: primitive.dtype() });
    }
    let wanted = Wanted::new(wanted);
    let needs = wanted.all_needs();
    let prepared = CustomVjp { operation: operation.clone(), parents, wanted }.prepare::<C>(nodes);
    let prepared = match kind {
        Differentiation::MemoryBound => {
            let input = inputs.float(first);
            let recompute = Recompute::<B> { operation: operation.clone(), input: input.node.id, backend: PhantomData };
            prepared.memory_bound().retro_forward(recompute).parents([input])
        }
        _ => prepared.compute_bound(),
    };
    let mut step = match prepared.stateful() {
        OpsKind::Tracked(step) => step,
        OpsKind::UnTracked(step) => {
            let mut outputs = B::run(operation, inner(inputs), &[]).outputs;
            let first = step.finish(outputs.take_float(0));
            return with_first(first, outputs).into();
        }
    };
    let checkpointed = matches!(kind, Differentiation::Checkpointed | Differentiation::MemoryBound);
    let residuals = operation.residuals(&needs);
    // Inputs are retained before the operation runs, which may overwrite tensors without other owners.
    let mut held: Vec<_> = residuals
        .iter()
        .map(|residual| match residual {
            Residual::Input(i) => match inputs.get(i) {
                Some(AnyTensor::Float(x)) if checkpointed => Held::Checkpoint(step.checkpoint(x)),
                value => Held::Value(value.cloned().map(inner_value)),
            },
            _ => Held::Value(None),
        })
        .collect();
    let Outcome { mut outputs, mut saved } = B::run(operation, inner(inputs), &needs);
    for (held, residual) in held.iter_mut().zip(residuals.iter()) {
        match residual {
            Residual::Output(i) => *held = Held::Value(outputs.get(i).cloned()),
            Residual::Saved(i) => *held = Held::Value(saved.take(i)),
            Residual::Input(_) | Residual::Absent => {}
        }
    }
    let first = step.finish(held, outputs.take_float(0));
    with_first(first, outputs).into()
}

/// Combines the first output with the others, which get no gradient.
fn with_first<B: Backend, C: CheckpointStrategy>(
    first: FloatTensor<Autodiff<B, C>>,
    rest: Values<B>,
) -> Values<Autodiff<B, C>> {
    let mut outputs = untracked(rest);
    outputs.put_float(0, first);
    outputs
}
