//! Optimization passes: dead-code elimination and common-subexpression elimination.

use burn::tensor::TensorData;
use std::collections::{HashMap, HashSet};

use super::{Digest, Equation, Graph, Var, identity::constant_digest, keys::keys_in};
use crate::{Primitive, control::prune};

/// Key of an equation: the identity of its [primitive](Primitive::identity), and its inputs.
type Key = (Vec<u8>, Vec<Option<Var>>);

impl Graph {
    /// Returns the graph without equations and constants that no result depends on.
    pub fn without_dead_code(mut self) -> Self {
        let mut live: HashSet<Var> = self.outputs.iter().map(|(_, var)| *var).collect();
        let mut retained: Vec<Equation> = Vec::with_capacity(self.equations.len());
        for mut equation in self.equations.into_iter().rev() {
            let meets_ranks = equation.primitive.meets_ranks();
            if meets_ranks || equation.outputs.iter().flatten().any(|var| live.contains(var)) {
                if !meets_ranks {
                    prune(&mut equation, &live);
                }
                live.extend(equation.inputs.iter().flatten());
                retained.push(equation);
            }
        }
        retained.reverse();
        self.equations = retained;
        self.constants.retain(|(var, _)| live.contains(var));
        if !self.keys.derived.is_empty() {
            self.keys.keep_used(self.equations.iter().flat_map(|equation| keys_in(&equation.primitive)));
        }
        self.compacted()
    }

    /// Returns the graph with duplicate equations (the same operation and inputs) and duplicate constants merged.
    pub fn without_common_subexpressions(mut self) -> Self {
        let mut replaced: HashMap<Var, Var> = HashMap::new();
        let mut constants: HashMap<Digest, Vec<usize>> = HashMap::new();
        let mut kept_constants: Vec<(Var, TensorData)> = Vec::with_capacity(self.constants.len());
        for (var, data) in self.constants {
            let same = constants.entry(constant_digest(&data)).or_default();
            match same.iter().find(|&&i| kept_constants[i].1 == data) {
                Some(&i) => drop(replaced.insert(var, kept_constants[i].0)),
                None => {
                    same.push(kept_constants.len());
                    kept_constants.push((var, data));
                }
            }
        }
        self.constants = kept_constants;
        let mut seen: HashMap<Key, Vec<usize>> = HashMap::new();
        let mut retained: Vec<Equation> = Vec::with_capacity(self.equations.len());
        for mut equation in self.equations {
            for input in equation.inputs.iter_mut().flatten() {
                *input = replaced.get(input).copied().unwrap_or(*input);
            }
            if equation.primitive.meets_ranks() {
                retained.push(equation);
                continue;
            }
            let same = seen.entry((equation.primitive.identity(), equation.inputs.clone())).or_default();
            // The identity has only digests of sub-graphs and no rules, so compare the operations.
            let is_twin = |twin: &Equation| match (&equation.primitive, &twin.primitive) {
                (Primitive::HigherOrder(op), Primitive::HigherOrder(twin)) => op == twin,
                _ => true,
            };
            match same.iter().find(|&&i| is_twin(&retained[i])) {
                Some(&i) => share_outputs(&equation, &mut retained[i], &mut replaced),
                None => {
                    same.push(retained.len());
                    retained.push(equation);
                }
            }
        }
        self.equations = retained;
        for (_, var) in &mut self.outputs {
            *var = replaced.get(var).copied().unwrap_or(*var);
        }
        self.without_dead_code()
    }

    /// Returns the graph without unused variables. Variables are renumbered in the order of assignment.
    pub(crate) fn compacted(mut self) -> Self {
        let mut new: HashMap<Var, Var> = HashMap::new();
        let mut variables = Vec::new();
        let mut renumber = |var: &mut Var| {
            *var = *new.entry(*var).or_insert_with(|| {
                variables.push(self.variables[var.index()].clone());
                Var(variables.len() as u32 - 1)
            });
        };
        self.constants.iter_mut().for_each(|(var, _)| renumber(var));
        self.inputs.iter_mut().for_each(|(_, var)| renumber(var));
        for equation in &mut self.equations {
            equation.inputs.iter_mut().flatten().for_each(&mut renumber);
            equation.outputs.iter_mut().flatten().for_each(&mut renumber);
        }
        self.outputs.iter_mut().for_each(|(_, var)| renumber(var));
        self.variables = variables;
        self
    }
}

/// Replaces the outputs of an equation by the outputs of its twin. An output that the twin lacks is added to the twin.
fn share_outputs(equation: &Equation, twin: &mut Equation, replaced: &mut HashMap<Var, Var>) {
    if twin.outputs.len() < equation.outputs.len() {
        twin.outputs.resize(equation.outputs.len(), None);
    }
    for (own, output) in equation.outputs.iter().zip(&mut twin.outputs) {
        match (own, &output) {
            (Some(own), Some(output)) => drop(replaced.insert(*own, *output)),
            (Some(_), None) => *output = *own,
            (None, _) => {}
        }
    }
}
