//! Operations with a batch axis: one call computes all examples.

use grove_backend::{
    AnyTensor, Backend,
    ops::{BatchAxis, Call, Residual, Spec, Wanted},
};
use std::collections::HashSet;

use super::rules::{Batched, BatchingRules};
use crate::{
    Graph, Primitive,
    eval::apply,
    graph::{Equation, Var},
};

/// Use of an input by an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It has the operation's batch axis.
    Batch,
    /// It has the batch axis, of size 1 or that of the batch.
    Broadcast,
    /// The whole batch uses it.
    Shared,
}

/// Returns the role of each input of a call of an operation with a batch axis; `None` for all others. An operation with a random
/// key has none: its samples depend on the size of the batch.
pub(super) fn roles(primitive: &Primitive, inputs: usize) -> Option<Vec<Role>> {
    let Primitive::Grove(call) = primitive else { return None };
    let axis = axis_of(call)?;
    let role = |position| match position {
        position if axis.inputs.contains(&position) => Role::Batch,
        position if axis.broadcast.contains(&position) => Role::Broadcast,
        _ => Role::Shared,
    };
    match call {
        Call::Run(..) => Some((0..inputs).map(role).collect()),
        Call::Vjp(operation, residuals, wanted) => {
            let residual = |residual| match residual {
                Residual::Input(position) => role(position),
                Residual::Output(_) | Residual::Saved(_) => Role::Batch,
                Residual::Absent => Role::Shared,
            };
            let of_residuals = operation.residuals(&wanted.all_needs());
            let mut roles: Vec<_> = of_residuals.iter().map(residual).collect();
            if roles.len() != *residuals {
                return None;
            }
            // The gradients of the outputs follow.
            roles.resize(inputs, Role::Batch);
            Some(roles)
        }
    }
}

fn axis_of(call: &Call) -> Option<BatchAxis> {
    let axis = operation(call).batch_axis()?;
    call.clone().key_mut().is_none().then_some(axis)
}

fn operation(call: &Call) -> &grove_backend::ops::Operation {
    let (Call::Run(operation, _) | Call::Vjp(operation, ..)) = call;
    operation
}

/// Decomposes the operations of a graph, except those that compute all examples in one call. `batched` tells for each input of the
/// graph if it differs between examples.
pub(super) fn decomposed(mut graph: Graph, batched: impl IntoIterator<Item = bool>) -> Graph {
    let equations = std::mem::take(&mut graph.equations);
    graph.equations = equations.into_iter().flat_map(split).collect();
    let inputs = graph.inputs.iter().zip(batched);
    let mut differ: HashSet<Var> = inputs.filter(|(_, batched)| *batched).map(|((_, var), _)| *var).collect();
    let mut whole = HashSet::new();
    for (position, equation) in graph.equations.iter().enumerate() {
        if !equation.inputs.iter().flatten().any(|var| differ.contains(var)) {
            continue;
        }
        differ.extend(equation.outputs.iter().flatten());
        if is_whole(&graph, equation, &differ) {
            whole.insert(position);
        }
    }
    graph.decomposed_except_at(&whole)
}

/// Splits a derivative into that of the inputs with the batch axis and that of the shared ones. The latter have another gradient
/// for each example.
fn split(equation: Equation) -> Vec<Equation> {
    let Primitive::Grove(call @ Call::Vjp(operation, residuals, wanted)) = &equation.primitive else {
        return vec![equation];
    };
    let Some(axis) = axis_of(call) else { return vec![equation] };
    let part = |of_batch: bool| {
        let is_in = |position: usize| axis.inputs.contains(&position) == of_batch;
        let wanted = wanted.map(|position, spec| is_in(position).then(|| spec.clone()));
        let needs = wanted.all_needs();
        if !needs.contains(&true) {
            return None;
        }
        let mut inputs = equation.inputs.clone();
        for (input, residual) in inputs.iter_mut().take(*residuals).zip(operation.residuals(&needs).iter()) {
            if residual == Residual::Absent {
                *input = None;
            }
        }
        let outputs = equation.outputs.iter().enumerate();
        let outputs = outputs.map(|(position, var)| if is_in(position) { *var } else { None }).collect();
        let primitive = Primitive::Grove(Call::Vjp(operation.clone(), *residuals, wanted));
        Some(Equation { primitive, inputs, outputs })
    };
    match (part(true), part(false)) {
        (Some(of_batch), Some(of_shared)) => vec![of_batch, of_shared],
        _ => vec![equation],
    }
}

/// Returns true if one call computes the equation for all examples: they share the inputs without the batch axis.
fn is_whole(graph: &Graph, equation: &Equation, differ: &HashSet<Var>) -> bool {
    let Some(roles) = roles(&equation.primitive, equation.inputs.len()) else { return false };
    let Primitive::Grove(call) = &equation.primitive else { return false };
    let Some(axis) = axis_of(call) else { return false };
    let (first, gives_batch) = match call {
        Call::Run(..) => (axis.inputs[0], true),
        Call::Vjp(_, residuals, wanted) => (
            *residuals,
            (0..equation.outputs.len())
                .all(|position| wanted.get(position).is_none() || axis.inputs.contains(&position)),
        ),
    };
    let has_axis = equation.inputs.get(first).copied().flatten();
    let has_axis = has_axis.is_some_and(|var| graph.shape(var).num_dims() >= axis.min_rank);
    let shares =
        |(var, role): (&Option<Var>, &Role)| *role != Role::Shared || !var.is_some_and(|var| differ.contains(&var));
    has_axis && gives_batch && equation.inputs.iter().zip(&roles).all(shares)
}

impl<B: Backend> BatchingRules<'_, B> {
    /// Calls an operation once, with the examples merged into its batch axis.
    pub(super) fn whole(
        &self,
        primitive: &Primitive,
        roles: &[Role],
        inputs: Vec<Option<Batched<B>>>,
        outputs: usize,
    ) -> Vec<Option<AnyTensor<B>>> {
        let with_axis = inputs.iter().zip(roles).filter(|(_, role)| **role == Role::Batch);
        let batch = with_axis.filter_map(|(x, _)| x.as_ref()).map(|x| x.tensor.shape()[usize::from(x.batched)]).next();
        let merged = inputs.into_iter().zip(roles).map(|(x, role)| {
            let x = x?;
            Some(match role {
                Role::Batch => self.merged(x),
                Role::Broadcast if x.batched || x.tensor.shape()[0] > 1 => self.merged(self.repeated(x, batch)),
                Role::Broadcast | Role::Shared => x.tensor,
            })
        });
        let results = apply(&self.of_batch(primitive), merged.collect(), outputs, self.target);
        results.into_iter().map(|x| x.map(|x| self.unfolded(x))).collect()
    }

    /// Like [`folded`](Self::folded), without a copy where the strides allow it.
    fn merged(&self, x: Batched<B>) -> AnyTensor<B> {
        match self.expanded(x) {
            AnyTensor::Float(x) => AnyTensor::Float(B::merge_axes(x)),
            tensor => self.folded(Batched { tensor, batched: true }),
        }
    }

    /// Repeats the entry of a batch axis of size 1.
    fn repeated(&self, x: Batched<B>, batch: Option<usize>) -> Batched<B> {
        let tensor = self.expanded(x);
        let shape = tensor.shape();
        let tensor = match batch {
            Some(batch) if shape[1] != batch => {
                self.one(Primitive::BroadcastTo([&[shape[0], batch], &shape[2..]].concat()), [tensor])
            }
            _ => tensor,
        };
        Batched { tensor, batched: true }
    }

    /// Returns the operation for the batch of all examples.
    fn of_batch(&self, primitive: &Primitive) -> Primitive {
        let Primitive::Grove(Call::Vjp(operation, residuals, wanted)) = primitive else { return primitive.clone() };
        let of_batch = |_, spec: &Spec| {
            let mut spec = spec.clone();
            spec.shape[0] *= self.examples;
            Some(spec)
        };
        Primitive::Grove(Call::Vjp(operation.clone(), *residuals, Wanted::map(wanted, of_batch)))
    }
}
