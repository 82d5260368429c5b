//! Decomposition of grove's operations into Burn's.

use burn::tensor::ops::FloatTensorOps;
use grove_backend::{
    AnyTensor, InputPrecision,
    ops::{Call, Operation, Outcome, QuantizedLinear, Spec, Values, rounded_to_int8},
};
use std::collections::{HashMap, HashSet};

use super::{Equation, Graph, Var};
use crate::{
    Primitive, Traced, control::stopped, eval::with_key, sub_graph::HigherOrder, traced::Recording, types::Types,
};

impl Graph {
    /// Returns the graph with grove's own operations replaced by compositions of Burn's operations. Dropout, random numbers,
    /// sorting, the unpacking of quantized weights and all-reduces are not decomposed.
    pub fn decomposed(self) -> Self {
        self.decomposed_except(|_| false)
    }

    /// Like [`decomposed`](Self::decomposed), but also keeps the operations for which `whole` returns true.
    pub fn decomposed_except(self, whole: fn(&Call) -> bool) -> Self {
        self.decompose(whole, |_| false)
    }

    /// Like [`decomposed`](Self::decomposed), but also keeps the equations at these positions. Graphs of loops and branches are
    /// decomposed.
    pub(crate) fn decomposed_except_at(self, positions: &HashSet<usize>) -> Self {
        self.decompose(|_| false, |position| positions.contains(&position))
    }

    fn decompose(self, whole: fn(&Call) -> bool, is_kept: impl Fn(usize) -> bool) -> Self {
        let mut known: HashMap<Vec<u8>, Graph> = HashMap::new();
        let mut positions = 0..;
        let inlined = self.with_bodies(|graph, equation| {
            let is_kept = positions.next().is_some_and(&is_kept);
            match &equation.primitive {
                Primitive::Grove(call) | Primitive::WithKey(call)
                    if !cannot_be_decomposed(call) && !whole(call) && !is_kept =>
                {
                    let inputs = || equation.inputs.iter().map(|var| Some(graph.spec((*var)?))).collect();
                    let new = || composition(&equation.primitive, call, inputs(), graph.types, whole);
                    Some(known.entry(graph.typed_identity(equation)).or_insert_with(new).clone())
                }
                Primitive::HigherOrder(op) => {
                    equation.primitive =
                        Primitive::HigherOrder(op.map_graphs(move |graph| graph.decomposed_except(whole)));
                    None
                }
                _ => None,
            }
        });
        inlined.with_sigmoids().without_dead_code()
    }

    /// Returns the graph with the forward passes of functions with a reverse-mode rule in place of the functions. A forward
    /// pass consists of operations with derivatives.
    pub(crate) fn with_forward_passes(self) -> Self {
        let inlined = self.with_bodies(|_, equation| match &equation.primitive {
            Primitive::HigherOrder(HigherOrder::CustomVjp { forward, .. }) => {
                let mut forward = (**forward).clone();
                forward.outputs.iter_mut().enumerate().for_each(|(i, (name, _))| *name = i.to_string());
                Some(forward)
            }
            Primitive::HigherOrder(op) => {
                equation.primitive = Primitive::HigherOrder(op.with_forward_passes());
                None
            }
            _ => None,
        });
        inlined.without_dead_code()
    }

    /// Replaces each equation for which `body` returns a graph by this graph. The outputs of such a graph are named by their
    /// positions.
    fn with_bodies(mut self, mut body: impl FnMut(&Self, &mut Equation) -> Option<Graph>) -> Self {
        // Replacements for the outputs of removed equations.
        let mut replaced: HashMap<Var, Var> = HashMap::new();
        for mut equation in std::mem::take(&mut self.equations) {
            for var in equation.inputs.iter_mut().flatten() {
                *var = replaced.get(var).copied().unwrap_or(*var);
            }
            match body(&self, &mut equation) {
                Some(body) => replaced.extend(self.inline(body, &equation)),
                None => self.equations.push(equation),
            }
        }
        for (_, var) in &mut self.outputs {
            *var = replaced.get(var).copied().unwrap_or(*var);
        }
        self
    }

    fn spec(&self, var: Var) -> Spec {
        self.variables[var.index()].clone()
    }

    /// Adds the equations of a composition in place of an equation. Returns the variables that replace its outputs.
    fn inline(&mut self, body: Graph, equation: &Equation) -> HashMap<Var, Var> {
        let given = equation.inputs.iter().flatten();
        let mut new: HashMap<Var, Var> = body.inputs.iter().map(|(_, inner)| *inner).zip(given.copied()).collect();
        for (i, spec) in body.variables.into_iter().enumerate() {
            let next = Var(self.variables.len() as u32);
            if *new.entry(Var(i as u32)).or_insert(next) == next {
                self.variables.push(spec);
            }
        }
        self.constants.extend(body.constants.into_iter().map(|(var, data)| (new[&var], data)));
        for mut inner in body.equations {
            inner.inputs.iter_mut().chain(&mut inner.outputs).flatten().for_each(|var| *var = new[var]);
            self.equations.push(inner);
        }
        let output = |position: &str| equation.outputs.get(position.parse::<usize>().ok()?).copied()?;
        body.outputs.iter().filter_map(|(position, inner)| Some((output(position)?, new[inner]))).collect()
    }
}

/// Returns true for operations whose compositions sample, sort or unpack blocks on the host, or communicate with other ranks.
fn cannot_be_decomposed(call: &Call) -> bool {
    let (Call::Run(operation, _) | Call::Vjp(operation, ..)) = call;
    // The derivative of an all-reduce is another all-reduce and can be decomposed.
    if let Call::Run(Operation::AllReduce(_), _) = call {
        return true;
    }
    matches!(
        operation,
        Operation::Dropout(_)
            | Operation::RandomBits(_)
            | Operation::RandomSamples(_)
            | Operation::RandomKeyData(_)
            | Operation::RandomFoldIn(_)
            | Operation::Dequantize(_)
            | Operation::Argsort(_)
    )
}

/// Rounds the activations of a product with a quantized matrix, and returns the product without rounding. The derivative of the
/// rounding is that of the identity.
fn without_rounding(operation: &Operation, inputs: &mut [Option<AnyTensor<Traced>>]) -> Operation {
    if let Operation::QuantizedLinear(linear @ QuantizedLinear { precision: InputPrecision::Int8, .. }) = operation
        && let Some(Some(AnyTensor::Float(x))) = inputs.first_mut()
    {
        let error = Traced::float_sub(rounded_to_int8::<Traced>(x.clone()), x.clone());
        if let AnyTensor::Float(error) = stopped(AnyTensor::<Traced>::Float(error)) {
            *x = Traced::float_add(x.clone(), error);
        }
        return QuantizedLinear { precision: InputPrecision::F32, ..*linear }.into();
    }
    operation.clone()
}

/// Traces the composition of an operation or its derivative. Results are named by their positions.
fn composition(
    primitive: &Primitive,
    call: &Call,
    inputs: Vec<Option<Spec>>,
    types: Types,
    whole: fn(&Call) -> bool,
) -> Graph {
    let recording = Recording::start(types);
    let input = |(i, spec): (usize, Option<Spec>)| spec.map(|spec| recording.input(i.to_string(), spec));
    let values: Vec<Option<AnyTensor<Traced>>> = inputs.into_iter().enumerate().map(input).collect();
    let (call, mut values) = match primitive {
        Primitive::WithKey(_) => with_key(call, values),
        _ => (call.clone(), values),
    };
    let results = match &call {
        Call::Run(operation, needs) => {
            let count = values.len();
            let operation = without_rounding(operation, &mut values);
            let inputs: Values<Traced> = values.into_iter().collect();
            let outputs = operation.shapes(&inputs.shapes()).len();
            // Without residuals, attention would be one of Burn's operations, which has no transformation rules.
            let needs = if needs.contains(&true) { needs.clone() } else { vec![true; count] };
            let Outcome { outputs: first, saved } = operation.compose(inputs, &needs);
            let mut results = first.into_values();
            results.resize_with(outputs, || None);
            results.extend(saved.into_values());
            results
        }
        Call::Vjp(operation, residuals, wanted) => {
            let grads = values.split_off(*residuals);
            operation.compose_vjp(values.into_iter().collect(), grads.into_iter().collect(), wanted).into_values()
        }
    };
    let outputs = results.into_iter().enumerate().filter_map(|(i, x)| Some((i.to_string(), x?)));
    // A composition may contain other operations of grove.
    recording.finish(outputs).decomposed_except(whole)
}
