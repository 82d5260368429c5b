//! Constant folding.

use burn::tensor::{TensorData, backend::BackendTypes};
use grove_backend::{
    AnyTensor, Backend,
    ops::{Call, Operation},
};
use std::{
    any::TypeId,
    collections::{HashMap, HashSet},
};

use super::{Equation, Graph, Var, identities::is_movement, keys::keys_in};
use crate::{
    Primitive,
    eval::apply,
    target::{Target, missing},
    traced::TraceDevice,
};

/// Maximum number of elements of a folded array.
const ELEMENTS: usize = 1 << 16;

impl Graph {
    /// Returns the graph with equations whose inputs are all constants replaced by constants, which are computed on a device.
    ///
    /// Arrays of more than 65,536 elements and random numbers are not folded. The result of an operation that only repeats
    /// elements, such as `full` and `broadcast_to`, takes more memory as a constant than as an equation: such an equation is
    /// kept, unless all equations that use it are folded.
    pub fn with_folded_constants<B: Backend>(mut self, device: &<B as BackendTypes>::Device) -> Self {
        // A trace has no values to compute with.
        if TypeId::of::<<B as BackendTypes>::Device>() == TypeId::of::<TraceDevice>() {
            return self;
        }
        let target = Target::<B>::new(device);
        let mut values = KnownValues::new(&self, &target);
        let results: Vec<Folded> = self.equations.iter().map(|equation| values.fold(equation)).collect();
        let known = values.known;
        // Backwards: a kept equation needs its inputs.
        let mut needed = vec![false; self.variables.len()];
        self.outputs.iter().for_each(|(_, var)| needed[var.index()] = true);
        let mut retained = Vec::with_capacity(self.equations.len());
        let mut constants = Vec::new();
        for (equation, folded) in std::mem::take(&mut self.equations).into_iter().zip(results).rev() {
            let used: Vec<Var> = equation.outputs.iter().flatten().copied().filter(|var| needed[var.index()]).collect();
            if folded == Folded::Constant {
                let data = |var: Var| Some((var, known.get(&var)?.clone().into_data()));
                constants.extend(used.into_iter().filter_map(data));
            } else if !used.is_empty() || equation.primitive.meets_ranks() {
                equation.inputs.iter().flatten().for_each(|var| needed[var.index()] = true);
                retained.push(equation);
            }
        }
        retained.reverse();
        constants.reverse();
        self.equations = retained;
        self.constants.extend(constants);
        self.without_dead_code()
    }
}

/// Result of folding an equation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Folded {
    /// The outputs depend on arguments or are not computed.
    No,
    /// The outputs become constants.
    Constant,
    /// The output is known but only repeats elements, so it does not become a constant.
    Repeats,
}

/// Values that do not depend on arguments.
struct KnownValues<'a, B: Backend> {
    graph: &'a Graph,
    target: &'a Target<'a, B>,
    constants: HashMap<Var, &'a TensorData>,
    known: HashMap<Var, AnyTensor<B>>,
    /// Arrays that only repeat elements.
    repeated: HashSet<Var>,
}

impl<'a, B: Backend> KnownValues<'a, B> {
    fn new(graph: &'a Graph, target: &'a Target<'a, B>) -> Self {
        let constants = graph.constants.iter().map(|(var, data)| (*var, data)).collect();
        Self { graph, target, constants, known: HashMap::new(), repeated: HashSet::new() }
    }

    /// Computes the outputs of an equation if its inputs are known.
    fn fold(&mut self, equation: &Equation) -> Folded {
        let known = |var: &Var| self.known.contains_key(var) || self.constants.contains_key(var);
        let small = |var: &Var| self.graph.shape(*var).num_elements() <= ELEMENTS;
        let foldable = match &equation.primitive {
            // Random numbers are large and cheap to recompute. All-reduces differ between calls.
            Primitive::Grove(Call::Run(operation, _) | Call::Vjp(operation, ..)) => {
                !matches!(operation, Operation::RandomBits(_) | Operation::Dropout(_) | Operation::AllReduce(_))
                    && !equation.inputs.is_empty()
                    // The key of a call is known only at run time.
                    && keys_in(&equation.primitive).is_empty()
            }
            // A loop may take arbitrarily long.
            Primitive::WithKey(_) | Primitive::DebugPrint(_) | Primitive::Fused(_) | Primitive::HigherOrder(_) => false,
            _ => true,
        };
        let (inputs, outputs) = (&equation.inputs, &equation.outputs);
        if !foldable || !outputs.iter().flatten().all(small) || !inputs.iter().flatten().all(known) {
            return Folded::No;
        }
        let given = inputs.iter().map(|var| var.map(|var| self.value(var))).collect();
        let found = apply(&equation.primitive, given, outputs.len(), self.target);
        let pairs: Vec<_> = outputs.iter().zip(found).filter_map(|(var, x)| Some(((*var)?, x))).collect();
        // On a device without the dtype, the constant would have another dtype than its variable.
        let fits = |(var, x): &(Var, Option<AnyTensor<B>>)| {
            x.as_ref().is_some_and(|x| x.dtype() == self.graph.dtype(*var) && x.shape() == *self.graph.shape(*var))
        };
        if !pairs.iter().all(fits) {
            return Folded::No;
        }
        let repeats = match &equation.primitive {
            Primitive::Full(..) | Primitive::BroadcastTo(_) | Primitive::Repeat(..) => true,
            primitive => is_movement(primitive) && inputs.iter().flatten().all(|var| self.repeated.contains(var)),
        };
        if repeats {
            self.repeated.extend(outputs.iter().flatten());
        }
        self.known.extend(pairs.into_iter().filter_map(|(var, x)| Some((var, x?))));
        if repeats { Folded::Repeats } else { Folded::Constant }
    }

    /// Returns the value of a known variable.
    fn value(&mut self, var: Var) -> AnyTensor<B> {
        let value = self.known.get(&var).cloned().or_else(|| Some(self.target.constant(self.constants.get(&var)?)));
        let value = value.unwrap_or_else(|| missing());
        self.known.insert(var, value.clone());
        value
    }
}
