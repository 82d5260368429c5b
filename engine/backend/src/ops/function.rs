//! Functions with custom derivatives, defined outside of this crate: control flow in traces, and users' rules.

use burn::tensor::{TensorMetadata, ops::FloatTensor};
use burn_autodiff::{
    NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use std::fmt::Debug;

use super::{
    AnyTensor, Backend, Outcome, Spec, Values, Wanted,
    tracked::{Slots, inner, lifted, register_grad, untracked},
};
use crate::Autodiff;

/// A function of tensors with a custom derivative: the counterpart of [`Operation`](super::Operation) for dependent crates.
/// [`Backend::run_function`] runs it on any backend.
pub trait Function: Clone + Debug + Send + Sync + 'static {
    /// The derivative.
    type Vjp: FunctionVjp;
    /// False if the function is not differentiable.
    const DIFFERENTIABLE: bool = true;

    /// Returns the outputs.
    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B>;

    /// Returns the outputs with the residuals, and the derivative. `wanted` are the inputs that need a gradient.
    fn forward<B: Backend>(&self, inputs: Values<B>, wanted: &Wanted) -> (Outcome<B>, Self::Vjp);

    /// Returns the outputs on a differentiating backend if they are differentiated through their composition; `None` if
    /// [`forward`](Self::forward) provides the derivative. `tracked[i]` is true if input `i` needs a gradient.
    fn run_differentiable<B: Backend>(&self, _inputs: &Values<B>, _tracked: &[bool]) -> Option<Values<B>> {
        None
    }
}

/// Derivative (vector-Jacobian product) of a [`Function`].
pub trait FunctionVjp: Clone + Debug + Send + Sync + 'static {
    /// Returns the gradients of the inputs, by position, from the residuals and the gradients of the outputs. An output
    /// that the loss does not depend on has no gradient.
    fn vjp<B: Backend>(&self, saved: Values<B>, grads: Values<B>, wanted: &Wanted) -> Values<B>;
}

/// Backward step of a function. Its single parent is a [`Join`] of the inputs' nodes, because the number of inputs varies.
#[derive(Debug)]
struct Step<V> {
    vjp: V,
    wanted: Wanted,
    /// Nodes of the inputs, by input position.
    inputs: Vec<Option<NodeId>>,
}

impl<B: Backend, V: FunctionVjp> Backward<B, 1> for Step<V> {
    type State = (Vec<Option<AnyTensor<B>>>, Slots<B>);

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let (saved, slots) = ops.state;
        let given = slots.take();
        if given.iter().all(Option::is_none) {
            return;
        }
        let given = Values::optional_floats(given);
        let mut results = self.vjp.vjp::<B>(saved.into_iter().collect(), given, &self.wanted);
        for (position, input) in self.inputs.into_iter().enumerate() {
            if let Some(input) = input {
                register_grad(grads, input, &mut results, position, &self.wanted);
            }
        }
    }
}

/// A node with two parents and no gradient. It connects a function to its inputs, whose gradients the function registers
/// itself.
#[derive(Debug)]
struct Join;

impl<B: Backend> Backward<B, 2> for Join {
    type State = ();

    fn backward(self, _: Ops<(), 2>, _: &mut Gradients, _: &mut Checkpointer) {}
}

/// Runs a function on the inner backend, and records it with its derivative if an input needs a gradient.
pub(super) fn run<B: Backend, C: CheckpointStrategy, F: Function>(
    function: &F,
    inputs: Values<Autodiff<B, C>>,
) -> Values<Autodiff<B, C>> {
    let tracked_float = |i: usize| match inputs.get(i) {
        Some(AnyTensor::Float(x)) if x.is_tracked() => Some(x),
        _ => None,
    };
    let tracked: Vec<_> = (0..inputs.len()).map(tracked_float).collect();
    let Some(first) = tracked.iter().flatten().next().filter(|_| F::DIFFERENTIABLE) else {
        return untracked(B::run_function(function, inner(inputs)));
    };
    let flags: Vec<_> = tracked.iter().map(Option::is_some).collect();
    if let Some(outputs) = function.run_differentiable(&inputs, &flags) {
        return outputs;
    }
    let spec = |x: &FloatTensor<Autodiff<B, C>>| Spec { shape: x.shape(), dtype: x.dtype() };
    let wanted = Wanted::new(tracked.iter().map(|x| x.map(spec)).collect());
    let nodes = tracked.iter().map(|x| x.map(|x| x.node.id)).collect();
    // The inputs' nodes must stay alive until the function is in the graph: a backward pass on another thread, even of
    // another model, removes nodes without other owners.
    let _keep_alive: Vec<_> = tracked.iter().flatten().map(|x| x.rc.clone()).collect();
    let join = |a: FloatTensor<Autodiff<B, C>>, b: &&FloatTensor<Autodiff<B, C>>| {
        let prepared = Backward::<B, 2>::prepare::<C>(Join, [a.node.clone(), b.node.clone()]);
        let value = b.primitive.clone();
        match prepared.compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((), value),
            OpsKind::UnTracked(step) => step.finish(value),
        }
    };
    let joined = tracked.iter().flatten().skip(1).fold((*first).clone(), join);
    let place = joined.primitive.clone();
    let (Outcome { outputs, saved }, vjp) = function.forward::<B>(inner(inputs), &wanted);
    let outputs = outputs.into_values();
    let slots = Slots::new(outputs.len());
    let step = Step { vjp, wanted, inputs: nodes };
    // The function's own node has no gradient, and thus no value; any tensor serves as its value.
    let whole: FloatTensor<Autodiff<B, C>> = match step.prepare::<C>([joined.node.clone()]).compute_bound().stateful() {
        OpsKind::Tracked(step) => step.finish((saved.into_values(), slots.clone()), place),
        OpsKind::UnTracked(step) => step.finish(place),
    };
    let track = |(i, output): (usize, Option<AnyTensor<B>>)| {
        Some(match output? {
            AnyTensor::Float(x) => AnyTensor::Float(slots.track::<C>(&whole, i, x)),
            other => lifted(other),
        })
    };
    outputs.into_iter().enumerate().map(track).collect()
}
