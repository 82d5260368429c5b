//! Passes: graphs that compute the same in fewer equations.

use burn::tensor::TensorData;
use std::collections::{HashMap, HashSet};

use super::{Equation, Graph, Var, keys::keys_in};
use crate::control::prune;

impl Graph {
    /// Returns the graph without equations and constants that no result depends on.
    pub fn without_dead_code(mut self) -> Self {
        let mut live: HashSet<Var> = self.outputs.iter().map(|(_, var)| *var).collect();
        let mut kept: Vec<Equation> = Vec::with_capacity(self.equations.len());
        for mut equation in self.equations.into_iter().rev() {
            let meets_ranks = equation.primitive.meets_ranks();
            if meets_ranks || equation.outputs.iter().flatten().any(|var| live.contains(var)) {
                if !meets_ranks {
                    prune(&mut equation, &live);
                }
                live.extend(equation.inputs.iter().flatten());
                kept.push(equation);
            }
        }
        kept.reverse();
        self.equations = kept;
        self.constants.retain(|(var, _)| live.contains(var));
        if !self.keys.derived.is_empty() {
            self.keys.keep_used(self.equations.iter().flat_map(|equation| keys_in(&equation.primitive)));
        }
        self.compacted()
    }

    /// Returns the graph with one equation where several have the same operation and inputs, and one constant where
    /// several have the same values.
    pub fn without_common_subexpressions(mut self) -> Self {
        let mut replaced: HashMap<Var, Var> = HashMap::new();
        let mut constants: HashMap<Vec<u8>, Vec<usize>> = HashMap::new();
        let mut kept_constants = Vec::with_capacity(self.constants.len());
        for (var, data) in self.constants {
            let same = constants.entry(data.as_bytes().to_vec()).or_default();
            let twin = same.iter().find(|&&i| {
                let (_, other): &(Var, TensorData) = &kept_constants[i];
                other.shape == data.shape && other.dtype == data.dtype
            });
            match twin {
                Some(&i) => drop(replaced.insert(var, kept_constants[i].0)),
                None => {
                    same.push(kept_constants.len());
                    kept_constants.push((var, data));
                }
            }
        }
        self.constants = kept_constants;
        let mut seen: HashMap<(String, Vec<Option<Var>>), usize> = HashMap::new();
        let mut kept: Vec<Equation> = Vec::with_capacity(self.equations.len());
        for mut equation in self.equations {
            for input in equation.inputs.iter_mut().flatten() {
                *input = replaced.get(input).copied().unwrap_or(*input);
            }
            // Debug prints hold every static parameter.
            let key = (format!("{:?}", equation.primitive), equation.inputs.clone());
            match seen.get(&key).filter(|_| !equation.primitive.meets_ranks()) {
                Some(&twin) => {
                    let pairs = equation.outputs.iter().zip(&kept[twin].outputs);
                    replaced.extend(pairs.filter_map(|(var, twin)| Some(((*var)?, (*twin)?))));
                }
                None => {
                    seen.insert(key, kept.len());
                    kept.push(equation);
                }
            }
        }
        self.equations = kept;
        for (_, var) in &mut self.outputs {
            *var = replaced.get(var).copied().unwrap_or(*var);
        }
        self.without_dead_code()
    }

    /// The same graph without variables that nothing mentions, in the order in which they are assigned.
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
