//! Segments: operations that a lazy device has recorded but not run, and the programs built from them.

use burn::tensor::{BoolDType, FloatDType, IntDType};
use grove_backend::ops::Spec;
use std::{
    collections::{HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use crate::{
    Primitive,
    graph::{Equation, Graph, Var},
    types::Types,
};

/// Default dtypes of lazy devices.
pub(super) const TYPES: Types = Types { float: FloatDType::F32, int: IntDType::I32, boolean: BoolDType::Native };

/// Operations recorded since the last program.
#[derive(Default)]
pub(super) struct Segment {
    variables: Vec<Spec>,
    /// The tensor of each variable; `variable_of` maps back from tensors to variables.
    tensors: Vec<u32>,
    variable_of: HashMap<u32, Var>,
    /// Computed arrays that the equations use.
    inputs: Vec<Var>,
    equations: Vec<Equation>,
    /// Results of the equations, in order.
    results: Vec<Var>,
    /// Labels of the ends of steps, with the number of equations before each end.
    ends: Vec<(u64, usize)>,
}

impl Segment {
    pub fn len(&self) -> usize {
        self.equations.len()
    }

    pub fn contains(&self, tensor: u32) -> bool {
        self.variable_of.contains_key(&tensor)
    }

    pub fn meets_ranks(&self) -> bool {
        self.equations.iter().any(|equation| equation.primitive.meets_ranks())
    }

    /// Returns the computed arrays that the equations use, in order of first use.
    pub fn inputs(&self) -> Vec<u32> {
        self.inputs.iter().map(|var| self.tensors[var.index()]).collect()
    }

    /// Returns the tensors that the equations compute, in order.
    pub fn results(&self) -> impl Iterator<Item = u32> {
        self.results.iter().map(|var| self.tensors[var.index()])
    }

    fn variable(&mut self, tensor: u32, spec: Spec) -> Var {
        let var = Var(self.variables.len() as u32);
        self.variables.push(spec);
        self.tensors.push(tensor);
        self.variable_of.insert(tensor, var);
        var
    }

    /// Returns the variable of a tensor that is used. A tensor that no equation computes becomes an input.
    pub fn used(&mut self, tensor: u32, spec: impl FnOnce() -> Spec) -> Var {
        if let Some(var) = self.variable_of.get(&tensor) {
            return *var;
        }
        let var = self.variable(tensor, spec());
        self.inputs.push(var);
        var
    }

    /// Adds the variable of a tensor that the next equation computes.
    pub fn result(&mut self, tensor: u32, spec: Spec) -> Var {
        let var = self.variable(tensor, spec);
        self.results.push(var);
        var
    }

    pub fn push(&mut self, equation: Equation) {
        self.equations.push(equation);
    }

    /// Removes the last equation if it is a reshape of a computed array with this tensor as its result. Returns the array, and
    /// true if nothing else uses it.
    pub fn take_reshape(&mut self, tensor: u32) -> Option<(u32, bool)> {
        let output = *self.variable_of.get(&tensor)?;
        let Equation { primitive: Primitive::Reshape(_), inputs, outputs } = self.equations.last()? else {
            return None;
        };
        let (&[Some(input)], true) = (&inputs[..], *outputs == [Some(output)]) else { return None };
        if !self.inputs.contains(&input) {
            return None;
        }
        let source = self.tensors[input.index()];
        self.equations.pop();
        self.results.pop();
        self.pop_variable();
        // The reshape was the first use of the input, so the segment no longer needs the input.
        let is_unused = input.index() + 1 == self.variables.len();
        if is_unused {
            self.inputs.pop();
            self.pop_variable();
        }
        Some((source, is_unused))
    }

    fn pop_variable(&mut self) {
        self.variables.pop();
        if let Some(tensor) = self.tensors.pop() {
            self.variable_of.remove(&tensor);
        }
    }

    /// Creates a segment of some of the equations.
    fn part<'a>(&'a self, equations: impl IntoIterator<Item = &'a Equation>) -> Self {
        let mut part = Self::default();
        let of = |var: &Var| (self.tensors[var.index()], self.variables[var.index()].clone());
        for Equation { primitive, inputs, outputs } in equations {
            let input = |var: &Option<Var>| {
                let var = var.as_ref()?;
                Some(part.used(self.tensors[var.index()], || self.variables[var.index()].clone()))
            };
            let inputs = inputs.iter().map(input).collect();
            let output = |var: &Option<Var>| {
                let (tensor, spec) = of(var.as_ref()?);
                Some(part.result(tensor, spec))
            };
            let outputs = outputs.iter().map(output).collect();
            part.push(Equation { primitive: primitive.clone(), inputs, outputs });
        }
        part
    }

    /// Splits into the first `count` equations and the others.
    pub fn split(&self, count: usize) -> [Self; 2] {
        let (first, rest) = self.equations.split_at(count);
        let mut rest = self.part(rest);
        let later = |(label, end): &(u64, usize)| Some((*label, end.checked_sub(count).filter(|end| *end > 0)?));
        rest.ends = self.ends.iter().filter_map(later).collect();
        [self.part(first), rest]
    }

    /// Returns the equations that the wanted tensors depend on. Computed tensors need no equations.
    pub fn needed_for(&self, wanted: impl Fn(u32) -> bool, is_computed: impl Fn(u32) -> bool) -> Self {
        let mut needed: HashSet<Var> = HashSet::new();
        let mut chosen = Vec::new();
        for equation in self.equations.iter().rev() {
            let is_needed = |var: &Var| {
                let tensor = self.tensors[var.index()];
                !is_computed(tensor) && (needed.contains(var) || wanted(tensor))
            };
            if equation.outputs.iter().flatten().any(is_needed) {
                needed.extend(equation.inputs.iter().flatten());
                chosen.push(equation);
            }
        }
        self.part(chosen.into_iter().rev())
    }

    /// Creates the program of all equations, which returns some of their results.
    pub fn graph(&self, is_result: impl Fn(u32) -> bool) -> Graph {
        let named = |list: &[Var], prefix: &str| {
            let list = list.iter().enumerate();
            list.map(|(i, var)| (format!("{prefix}{i}"), *var)).collect()
        };
        let results = self.results.iter().filter(|var| is_result(self.tensors[var.index()]));
        Graph {
            inputs: named(&self.inputs, ""),
            outputs: named(&results.copied().collect::<Vec<_>>(), ""),
            variables: self.variables.clone(),
            equations: self.equations.clone(),
            constants: Vec::new(),
            keys: Default::default(),
            types: TYPES,
        }
    }

    /// Marks the end of a step. Returns the number of equations before the previous end with this label, if there is one.
    pub fn end_step(&mut self, label: u64) -> Option<usize> {
        let (now, before) = (self.equations.len(), self.ends.iter().position(|(known, _)| *known == label));
        let Some(before) = before else {
            if now > 0 {
                self.ends.push((label, now));
            }
            return None;
        };
        let (_, end) = self.ends[before];
        // Ends with other labels are inside a step of this label.
        self.ends = vec![(label, now)];
        (end < now).then_some(end)
    }

    /// Hashes each equation: its operation, the types of its inputs and outputs, and the distance to the equations that
    /// computed its inputs. Numbers, keys and other static values are ignored, so that all steps of a loop have equal hashes.
    fn hashes(&self) -> Vec<u64> {
        let mut ordinal: HashMap<Var, usize> = HashMap::with_capacity(self.results.len());
        let mut hashes = Vec::with_capacity(self.equations.len());
        for equation in &self.equations {
            let mut hasher = DefaultHasher::new();
            equation.primitive.name().hash(&mut hasher);
            let (now, spec) = (ordinal.len(), |var: &Var| &self.variables[var.index()]);
            let mut hash_spec = |spec: &Spec| (&spec.shape[..], spec.dtype).hash(&mut hasher);
            equation.outputs.iter().flatten().for_each(|var| hash_spec(spec(var)));
            equation.inputs.iter().flatten().for_each(|var| hash_spec(spec(var)));
            for var in equation.inputs.iter().flatten() {
                ordinal.get(var).map(|before| now - before).hash(&mut hasher);
            }
            hashes.push(hasher.finish());
            for var in equation.outputs.iter().flatten() {
                ordinal.insert(*var, ordinal.len());
            }
        }
        hashes
    }

    /// Hashes all equations, ignoring numbers and keys.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hashes().hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the period of the equations if at least the last half of them is periodic with at least two repetitions.
    pub fn period(&self) -> Option<usize> {
        let mut reversed = self.hashes();
        reversed.reverse();
        let matched = matched_prefixes(&reversed);
        let count = reversed.len();
        (1..=count / 2).find(|period| matched[*period] >= count / 2)
    }
}

/// Computes the Z function: for each position, the length of the longest common prefix of the list and its suffix at that
/// position.
fn matched_prefixes(list: &[u64]) -> Vec<usize> {
    let mut matched = vec![0; list.len()];
    let (mut left, mut right) = (0, 0);
    for i in 1..list.len() {
        if i < right {
            matched[i] = matched[i - left].min(right - i);
        }
        while i + matched[i] < list.len() && list[matched[i]] == list[i + matched[i]] {
            matched[i] += 1;
        }
        if i + matched[i] > right {
            (left, right) = (i, i + matched[i]);
        }
    }
    matched
}

#[cfg(test)]
mod tests {
    use super::matched_prefixes;

    #[test]
    fn prefixes_are_matched_at_each_position() {
        assert_eq!(matched_prefixes(&[1, 2, 1, 2, 1, 3, 1, 2]), [0, 0, 3, 0, 1, 0, 2, 0]);
        assert_eq!(matched_prefixes(&[7, 7, 7, 7]), [0, 3, 2, 1]);
        assert!(matched_prefixes(&[]).is_empty());
    }
}
