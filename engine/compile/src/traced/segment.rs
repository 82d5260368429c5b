//! The operations that a lazy device has recorded and not run, and the programs that are made of them.

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

/// The default types of lazy devices.
pub(super) const TYPES: Types = Types { float: FloatDType::F32, int: IntDType::I32, boolean: BoolDType::Native };

/// The operations that were recorded since the last program ran.
#[derive(Default)]
pub(super) struct Segment {
    variables: Vec<Spec>,
    /// The tensor of each variable, and the variable of each tensor.
    tensors: Vec<u32>,
    variable_of: HashMap<u32, Var>,
    /// Computed arrays that are used.
    inputs: Vec<Var>,
    equations: Vec<Equation>,
    /// Results of the equations, in order.
    results: Vec<Var>,
    /// The ends of steps, by their labels, with the number of equations before each.
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

    /// The computed arrays that the equations use, in the order of their first use.
    pub fn inputs(&self) -> Vec<u32> {
        self.inputs.iter().map(|var| self.tensors[var.index()]).collect()
    }

    /// The tensors that the equations compute, in order.
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

    /// The variable of a tensor that is used. One that no equation computes becomes an input.
    pub fn used(&mut self, tensor: u32, spec: impl FnOnce() -> Spec) -> Var {
        if let Some(var) = self.variable_of.get(&tensor) {
            return *var;
        }
        let var = self.variable(tensor, spec());
        self.inputs.push(var);
        var
    }

    /// The variable of a tensor that the next equation computes.
    pub fn result(&mut self, tensor: u32, spec: Spec) -> Var {
        let var = self.variable(tensor, spec);
        self.results.push(var);
        var
    }

    pub fn push(&mut self, equation: Equation) {
        self.equations.push(equation);
    }

    /// Takes the last equation back if it gives a tensor another shape. Returns the input, and whether nothing else uses it.
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
        // An argument that was used for the first time is none any more.
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

    /// Some of the equations as a segment of their own.
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

    /// The first equations, and the others.
    pub fn split(&self, count: usize) -> [Self; 2] {
        let (first, rest) = self.equations.split_at(count);
        let mut rest = self.part(rest);
        let later = |(label, end): &(u64, usize)| Some((*label, end.checked_sub(count).filter(|end| *end > 0)?));
        rest.ends = self.ends.iter().filter_map(later).collect();
        [self.part(first), rest]
    }

    /// The equations that some tensors depend on. Tensors that are computed depend on none.
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

    /// The program of all equations with some of their results.
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

    /// Notes that a step ends here. Returns the number of equations before the end of the last step of this label, if there is one.
    pub fn end_step(&mut self, label: u64) -> Option<usize> {
        let (now, before) = (self.equations.len(), self.ends.iter().position(|(known, _)| *known == label));
        let Some(before) = before else {
            if now > 0 {
                self.ends.push((label, now));
            }
            return None;
        };
        let (_, end) = self.ends[before];
        // Others are within the step from one of these ends to the next.
        self.ends = vec![(label, now)];
        (end < now).then_some(end)
    }

    /// A hash of each equation: what it does with arrays of which types, and how far before it they were computed. Numbers, keys and
    /// static values are left out, so that steps of a loop have equal ones.
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

    /// A hash of all equations, but for numbers and keys.
    pub fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hashes().hash(&mut hasher);
        hasher.finish()
    }

    /// The length of the steps that the equations repeat, if the last half of them, and at least two steps, do.
    pub fn period(&self) -> Option<usize> {
        let mut reversed = self.hashes();
        reversed.reverse();
        let matched = matched_prefixes(&reversed);
        let count = reversed.len();
        (1..=count / 2).find(|period| matched[*period] >= count / 2)
    }
}

/// For each position the number of elements from there on that are those from the beginning on: the Z function.
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
