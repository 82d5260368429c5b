//! Partial evaluation: splitting a graph into two parts.

use std::collections::HashSet;

use super::{Graph, Var};

impl Graph {
    /// Splits a graph into the part that depends only on the first `inputs` arguments, and the remaining equations:
    /// `jax.interpreters.partial_eval`.
    ///
    /// The first part returns the first `outputs` results and then the residuals. The second part takes the residuals and then
    /// the other arguments, and returns the other results. The first `outputs` results must not depend on the other arguments.
    pub(crate) fn split(self, inputs: usize, outputs: usize) -> (Self, Self) {
        let mut unknown: HashSet<Var> = self.inputs[inputs..].iter().map(|(_, var)| *var).collect();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for equation in &self.equations {
            if equation.inputs.iter().flatten().any(|var| unknown.contains(var)) {
                unknown.extend(equation.outputs.iter().flatten());
                second.push(equation.clone());
            } else {
                first.push(equation.clone());
            }
        }
        let constants: HashSet<Var> = self.constants.iter().map(|(var, _)| *var).collect();
        let used = second.iter().flat_map(|equation| equation.inputs.iter().flatten().copied());
        let used = used.chain(self.outputs[outputs..].iter().map(|(_, var)| *var));
        let mut seen = HashSet::new();
        let passed: Vec<_> = used
            .filter(|var| !unknown.contains(var) && !constants.contains(var) && seen.insert(*var))
            .enumerate()
            .map(|(i, var)| (format!("residuals.{i}"), var))
            .collect();
        let first = Self {
            inputs: self.inputs[..inputs].to_vec(),
            equations: first,
            outputs: [&self.outputs[..outputs], &passed].concat(),
            ..self.clone()
        };
        let second = Self {
            inputs: [&passed, &self.inputs[inputs..]].concat(),
            equations: second,
            outputs: self.outputs[outputs..].to_vec(),
            ..self
        };
        (first.without_dead_code(), second.without_dead_code())
    }
}
