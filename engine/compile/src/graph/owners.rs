//! Attribution of equations to arguments.

use grove_backend::ops::Call;
use std::{collections::HashMap, rc::Rc};

use super::{Equation, Graph, OperationCost, Var, identities::is_movement};
use crate::Primitive;

/// Indices of arguments, with their sizes in bytes.
type Owners = Rc<[(usize, u128)]>;

/// The owners of an equation, and whether the owners are parameters.
type Owned = (Owners, bool);

impl Graph {
    /// Attributes each equation to arguments; see [`Cost::by_path`](super::Cost::by_path).
    fn owners(&self) -> Vec<Option<Owned>> {
        let positions: HashMap<Var, usize> = self.inputs.iter().enumerate().map(|(i, (_, var))| (*var, i)).collect();
        // The argument that a variable is, or that it is a moved or cast copy of.
        let mut stands = positions.clone();
        // The equation that produces a variable, and the index of the output.
        let mut producers: HashMap<Var, (usize, usize)> = HashMap::new();
        let mut owners: Vec<Option<Owned>> = Vec::with_capacity(self.equations.len());
        for (i, equation) in self.equations.iter().enumerate() {
            let read = equation.inputs.iter().flatten().filter_map(|var| stands.get(var).copied());
            let (parameters, data): (Vec<_>, Vec<_>) = read.partition(|position| self.is_parameter(*position));
            let of_producers = |parameters: bool| {
                let latest = |inputs: &[Option<Var>]| {
                    let before = inputs.iter().flatten().filter_map(|var| producers.get(var).copied());
                    let fits = |(i, _): &(usize, usize)| owners[*i].as_ref().is_some_and(|owned| owned.1 == parameters);
                    let (i, output) = before.filter(fits).max()?;
                    let (all, _) = owners[i].as_ref()?;
                    Some((of_output(all, output, self.equations[i].outputs.len()), parameters))
                };
                // For a derivative, the residuals come first.
                let residuals = residuals(equation);
                latest(&equation.inputs[..residuals]).or_else(|| latest(&equation.inputs[residuals..]))
            };
            let direct = |positions: Vec<usize>, parameters: bool| {
                (!positions.is_empty()).then(|| (self.sized(positions), parameters))
            };
            let owned = direct(parameters, true).or_else(|| of_producers(true));
            owners.push(owned.or_else(|| direct(data, false)).or_else(|| of_producers(false)));
            if let [Some(input)] = equation.inputs[..]
                && (is_movement(&equation.primitive) || matches!(equation.primitive, Primitive::Convert(_)))
                && let Some(position) = stands.get(&input).copied()
            {
                stands.extend(equation.outputs.iter().flatten().map(|var| (*var, position)));
            }
            let outputs = equation.outputs.iter().enumerate();
            producers.extend(outputs.filter_map(|(output, var)| Some(((*var)?, (i, output)))));
        }
        // Backwards: an equation that depends on no argument belongs to the first equation that uses it.
        let mut consumers: HashMap<Var, (usize, usize)> = HashMap::new();
        for (i, equation) in self.equations.iter().enumerate().rev() {
            if owners[i].is_none() {
                let first = equation.outputs.iter().flatten().filter_map(|var| consumers.get(var)).min();
                owners[i] = first.and_then(|(first, input)| {
                    let (all, parameters) = owners[*first].as_ref()?;
                    let inputs = self.equations[*first].inputs.iter().map(|var| stands.get(&(*var)?).copied());
                    Some((of_input(all, *input, inputs), *parameters))
                });
            }
            let inputs = equation.inputs.iter().enumerate();
            consumers.extend(inputs.filter_map(|(input, var)| Some(((*var)?, (i, input)))));
        }
        owners
    }

    /// Returns true for floating-point arguments with a field name in their path, in contrast to indices of tuples.
    fn is_parameter(&self, position: usize) -> bool {
        let (path, var) = &self.inputs[position];
        let named = path.split('.').any(|part| part.parse::<usize>().is_err() && !part.is_empty());
        named && self.dtype(*var).is_float()
    }

    fn sized(&self, mut positions: Vec<usize>) -> Owners {
        positions.sort_unstable();
        positions.dedup();
        positions.into_iter().map(|position| (position, self.bytes(self.inputs[position].1).max(1))).collect()
    }

    /// Sums the costs of the equations by the paths of the arguments, in their order. Costs that belong to no argument come
    /// last, with an empty path.
    pub(super) fn cost_by_path(&self, costs: &[OperationCost]) -> Vec<(String, OperationCost)> {
        let mut sums = vec![OperationCost::default(); self.inputs.len() + 1];
        for (cost, owned) in costs.iter().zip(self.owners()) {
            let Some((owners, _)) = owned else {
                sums[self.inputs.len()].add(*cost);
                continue;
            };
            let whole: u128 = owners.iter().map(|(_, size)| size).sum();
            let largest = owners.iter().copied().max_by_key(|(position, size)| (*size, usize::MAX - position));
            let mut rest = *cost;
            for (position, size) in owners.iter() {
                let part = |value: u128| value / whole * size + value % whole * size / whole;
                let part = OperationCost { count: 0, flops: part(cost.flops), bytes: part(cost.bytes) };
                sums[*position].add(part);
                (rest.flops, rest.bytes) = (rest.flops - part.flops, rest.bytes - part.bytes);
            }
            // The count of the equation and the remainder of the divisions.
            if let Some((position, _)) = largest {
                sums[position].add(rest);
            }
        }
        let paths = self.inputs.iter().map(|(path, _)| path.clone()).chain([String::new()]);
        paths.zip(sums).filter(|(_, cost)| *cost != OperationCost::default()).collect()
    }
}

/// Returns the number of residuals among the inputs of a derivative; 0 for other equations.
fn residuals(equation: &Equation) -> usize {
    match &equation.primitive {
        Primitive::Grove(Call::Vjp(_, residuals, _)) => (*residuals).min(equation.inputs.len()),
        Primitive::WithKey(Call::Vjp(_, residuals, _)) => (*residuals + 1).min(equation.inputs.len()),
        _ => 0,
    }
}

/// Returns the owner of an output if each of several owners has the same number of outputs, as in an optimizer step; otherwise
/// all owners.
fn of_output(owners: &Owners, output: usize, outputs: usize) -> Owners {
    match owners.len() > 1 && outputs.is_multiple_of(owners.len()) {
        true => Rc::new([owners[output / (outputs / owners.len())]]),
        false => owners.clone(),
    }
}

/// Returns the owner of an input: the last of several owners that is read before it. `inputs` are the arguments that are read,
/// by position.
fn of_input(owners: &Owners, input: usize, inputs: impl Iterator<Item = Option<usize>>) -> Owners {
    let owner = |position: usize| owners.iter().find(|(owner, _)| *owner == position).copied();
    match inputs.take(input).flatten().filter_map(owner).last() {
        Some(owner) => Rc::new([owner]),
        None => owners.clone(),
    }
}
