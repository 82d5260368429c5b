//! Fusion of element-wise operations into single passes over memory.

use burn::tensor::{DType, Scalar, Shape};
use burn_ir::ScalarIr;
use grove_backend::ops::{
    Call, GeluApproximation, Operation, Spec,
    chain::{Access, Chain, Map, Step, Sum},
};
use std::collections::{BTreeSet, HashMap};

use super::{Equation, Graph, Var};
use crate::{
    Primitive,
    fused::Fused,
    primitive::{Binary, Reduction},
};

/// Minimum length of a row for which its sum is fused.
const MIN_ROW: usize = 16;

/// Sums of rows.
struct RowSums {
    x: Var,
    y: Var,
    /// Number of elements in each sum.
    row: usize,
    /// Divisor of the sums.
    divisor: f32,
}

impl Graph {
    /// Returns the graph with chains of element-wise f32 operations fused into one operation each, if this saves passes over
    /// memory. Broadcast inputs are read without being expanded, and sums and means over the last axis or over all elements are
    /// fused into the chain. Only backends with a kernel for such chains can run the graph.
    pub(crate) fn fused(mut self) -> Self {
        let mut uses = vec![0; self.variables.len()];
        let used = self.equations.iter().flat_map(|equation| equation.inputs.iter().flatten());
        used.chain(self.outputs.iter().map(|(_, var)| var)).for_each(|var| uses[var.index()] += 1);
        let equations = std::mem::take(&mut self.equations);
        // Groups of equations that are emitted once an equation outside the group uses their values.
        let mut groups: Vec<Vec<Equation>> = Vec::new();
        let mut owners: HashMap<Var, usize> = HashMap::new();
        for mut equation in equations {
            if let Primitive::HigherOrder(op) = &equation.primitive {
                equation.primitive = Primitive::HigherOrder(op.fused());
            }
            // The shape of a sum differs from the shape of its group, so no operation of the group may use it.
            let summed = |var: &Var| {
                let group = *owners.get(var)?;
                (self.shape(*var) != self.shape(groups[group][0].outputs[0]?)).then_some(group)
            };
            let summed: BTreeSet<usize> = equation.inputs.iter().flatten().filter_map(summed).collect();
            summed.iter().for_each(|group| self.close(&mut groups[*group], &mut owners, &uses));
            if let Some(RowSums { x, y, .. }) = self.row_sums(&equation)
                && let Some(group) = owners.get(&x).copied()
            {
                groups[group].push(equation);
                owners.insert(y, group);
                continue;
            }
            let mut open: BTreeSet<usize> =
                equation.inputs.iter().flatten().filter_map(|var| owners.get(var).copied()).collect();
            let output = equation.outputs.first().copied().flatten();
            let Some(output) = output.filter(|_| self.is_step(&equation)) else {
                open.iter().for_each(|group| self.close(&mut groups[*group], &mut owners, &uses));
                self.equations.push(equation);
                continue;
            };
            open.retain(|group| {
                let first = groups[*group][0].outputs[0];
                let same = first.is_some_and(|var| self.shape(var) == self.shape(output));
                if !same {
                    self.close(&mut groups[*group], &mut owners, &uses);
                }
                same
            });
            let target = open.pop_first().unwrap_or_else(|| {
                groups.push(Vec::new());
                groups.len() - 1
            });
            for other in open {
                let moved = std::mem::take(&mut groups[other]);
                owners.extend(moved.iter().filter_map(|equation| Some((equation.outputs[0]?, target))));
                groups[target].extend(moved);
            }
            groups[target].push(equation);
            owners.insert(output, target);
        }
        groups.iter_mut().for_each(|group| self.close(group, &mut owners, &uses));
        self.without_dead_code()
    }

    /// Emits the equations of a group.
    fn close(&mut self, group: &mut Vec<Equation>, owners: &mut HashMap<Var, usize>, uses: &[usize]) {
        let group = std::mem::take(group);
        let Some(shape) = group.first().and_then(|equation| equation.outputs[0]).map(|var| self.shape(var).clone())
        else {
            return;
        };
        for var in group.iter().filter_map(|equation| equation.outputs[0]) {
            owners.remove(&var);
        }
        // Sums over rows of a different length than the first sum follow the chain as separate equations.
        let row = group.iter().find_map(|equation| self.row_sums(equation)).map(|sums| sums.row);
        let belongs = |equation: &Equation| self.row_sums(equation).is_none_or(|sums| Some(sums.row) == row);
        let (group, others): (Vec<_>, Vec<_>) = group.into_iter().partition(belongs);
        let sums: Vec<RowSums> = group.iter().filter_map(|equation| self.row_sums(equation)).collect();
        let steps: Vec<&Equation> = group.iter().filter(|equation| self.row_sums(equation).is_none()).collect();
        let mut inside = HashMap::<Var, usize>::new();
        let summed = sums.iter().map(|sums| &sums.x);
        steps.iter().flat_map(|equation| equation.inputs.iter().flatten()).chain(summed).for_each(|var| {
            *inside.entry(*var).or_default() += 1;
        });
        let results: Vec<Var> = steps.iter().filter_map(|equation| equation.outputs[0]).collect();
        let outputs: Vec<Var> = results
            .iter()
            .copied()
            .filter(|var| {
                uses.get(var.index()).copied().unwrap_or_default() > inside.get(var).copied().unwrap_or_default()
            })
            .collect();
        let mut inputs: Vec<Var> = inside.keys().copied().filter(|var| !results.contains(var)).collect();
        inputs.sort_unstable();
        // Passes over arrays with the group's shape. A boolean is converted before and after the chain.
        let passes = |var: &Var| match (self.shape(*var) == &shape, self.dtype(*var)) {
            (false, _) => 0,
            (true, DType::Bool(_)) => 3,
            (true, _) => 1,
        };
        let together: usize = inputs.iter().chain(&outputs).map(passes).sum();
        let alone = |equation: &&Equation| {
            let arrays = equation.inputs.iter().chain(&equation.outputs).flatten();
            arrays.filter(|var| self.shape(**var) == &shape).count()
        };
        let saved = steps.iter().map(alone).sum::<usize>() + sums.len();
        if steps.len() + sums.len() < 2 || outputs.is_empty() && sums.is_empty() || together >= saved {
            self.equations.extend(group.into_iter().chain(others));
            return;
        }
        let float = |shape: &Shape| Spec { shape: shape.clone(), dtype: DType::F32 };
        let mut values: HashMap<Var, usize> = HashMap::new();
        let (mut accesses, mut given) = (Vec::new(), Vec::new());
        for (i, var) in inputs.into_iter().enumerate() {
            values.insert(var, i);
            accesses.push(access(self.shape(var), &shape).unwrap_or(Access { repeat: 1, len: 1 }));
            let number = match self.dtype(var) {
                DType::F32 => var,
                _ => {
                    let number = self.add_variable(float(&self.shape(var).clone()));
                    let (primitive, inputs) = (Primitive::Convert(DType::F32), vec![Some(var)]);
                    self.equations.push(Equation { primitive, inputs, outputs: vec![Some(number)] });
                    number
                }
            };
            given.push(Some(number));
        }
        let mut functions = Vec::with_capacity(steps.len());
        for equation in &steps {
            let operands: Vec<usize> = equation.inputs.iter().flatten().map(|var| values[var]).collect();
            functions.extend(step(&equation.primitive, &operands));
            values.extend(equation.outputs[0].map(|var| (var, accesses.len() + functions.len() - 1)));
        }
        let numbers: Vec<usize> = outputs.iter().map(|var| values[var]).collect();
        let chain = Chain::new(accesses, functions, &numbers, shape.num_elements());
        let sum = |sums: &RowSums| Sum { value: values[&sums.x], row: sums.row, divisor: sums.divisor };
        let chain = chain.with_sums(sums.iter().map(sum).collect());
        let mut shapes = vec![shape.clone(); outputs.len()];
        shapes.extend(sums.iter().map(|sums| self.shape(sums.y).clone()));
        let (mut results, mut conditions) = (Vec::new(), Vec::new());
        for var in outputs {
            match self.dtype(var) {
                DType::F32 => results.push(Some(var)),
                _ => {
                    let number = self.add_variable(float(&shape));
                    results.push(Some(number));
                    conditions.push(Equation {
                        primitive: Primitive::BinaryScalar(Binary::Gt, ScalarIr::Float(0.5)),
                        inputs: vec![Some(number)],
                        outputs: vec![Some(var)],
                    });
                }
            }
        }
        results.extend(sums.iter().map(|sums| Some(sums.y)));
        let names = group.iter().map(|equation| equation.primitive.name()).collect();
        let primitive = Primitive::Fused(Fused { chain, shapes, names });
        self.equations.push(Equation { primitive, inputs: given, outputs: results });
        self.equations.extend(conditions.into_iter().chain(others));
    }

    /// Returns the sums or means of rows that an equation computes, if a chain can end with them.
    fn row_sums(&self, equation: &Equation) -> Option<RowSums> {
        let Primitive::Reduce(op @ (Reduction::Sum | Reduction::Mean), axis) = equation.primitive else { return None };
        let ([Some(x)], [Some(y)]) = (&equation.inputs[..], &equation.outputs[..]) else { return None };
        let shape = self.shape(*x);
        let trailing = axis.is_none_or(|axis| shape[axis + 1..].iter().all(|size| *size == 1));
        let row: usize = shape[axis.unwrap_or(0)..].iter().product();
        let divisor = if op == Reduction::Mean { row as f32 } else { 1.0 };
        let fits = trailing && row >= MIN_ROW && self.dtype(*x) == DType::F32 && self.dtype(*y) == DType::F32;
        fits.then_some(RowSums { x: *x, y: *y, row, divisor })
    }

    /// Returns true for element-wise operations that a chain supports.
    fn is_step(&self, equation: &Equation) -> bool {
        let [Some(output)] = equation.outputs[..] else { return false };
        let shape = self.shape(output);
        let taken = |dtype| matches!(dtype, DType::F32 | DType::Bool(_));
        let fits = |var: &Option<Var>| {
            var.is_some_and(|var| taken(self.dtype(var)) && access(self.shape(var), shape).is_some())
        };
        let operands: Vec<usize> = (0..equation.inputs.len()).collect();
        shape.num_elements() > 0
            && taken(self.dtype(output))
            && !equation.inputs.is_empty()
            && equation.inputs.iter().all(fits)
            && step(&equation.primitive, &operands).is_some()
    }
}

/// Returns the access pattern for broadcasting an array to a shape; `None` if the repeated elements do not form equal runs.
fn access(from: &Shape, to: &Shape) -> Option<Access> {
    let missing = to.num_dims().checked_sub(from.num_dims())?;
    let sizes: Vec<usize> = std::iter::repeat_n(1, missing).chain(from.iter().copied()).collect();
    // All axes between the first and last axis that is not broadcast must not be broadcast either.
    let own = |axis: &usize| sizes[*axis] == to[*axis] && to[*axis] != 1;
    let axes = 0..to.num_dims();
    let (Some(first), Some(last)) = (axes.clone().find(own), axes.clone().rev().find(own)) else {
        return sizes.iter().all(|size| *size == 1).then_some(Access { repeat: 1, len: 1 });
    };
    let whole = (first..=last).all(|axis| sizes[axis] == to[axis]);
    let rest = sizes.iter().enumerate().all(|(axis, size)| (first..=last).contains(&axis) || *size == 1);
    let product = |axes: std::ops::Range<usize>| axes.map(|axis| to[axis]).product();
    (whole && rest).then(|| Access { repeat: product(last + 1..to.num_dims()), len: product(first..last + 1) })
}

/// Returns the step of a chain for a primitive; `None` if chains do not support the primitive.
fn step(primitive: &Primitive, operands: &[usize]) -> Option<Step> {
    let number = |number: ScalarIr| Scalar::from(number).elem::<f32>();
    Some(match (primitive, operands) {
        (Primitive::Unary(op), [x]) => Step::Map(op.facts().chain?, *x),
        (Primitive::Convert(DType::F32) | Primitive::BroadcastTo(_), [x]) => Step::Map(Map::Copy, *x),
        (Primitive::Binary(op), [a, b]) => Step::Pair(op.facts().chain?, *a, *b),
        (Primitive::BinaryScalar(Binary::IntegerPow, exponent), [x]) => {
            Step::Power(*x, i32::try_from(Scalar::from(*exponent).elem::<i64>()).ok()?)
        }
        (Primitive::BinaryScalar(op, value), [x]) => Step::Number(op.facts().chain?, *x, number(*value)),
        (Primitive::Clamp(min, max), [x]) => Step::Clamp(*x, number(*min), number(*max)),
        (Primitive::Where, [no, mask, yes]) => Step::Select(*mask, *yes, *no),
        (Primitive::MaskFill(value), [x, mask]) => Step::Fill(*mask, *x, number(*value)),
        (Primitive::Grove(Call::Run(Operation::Selu(_), _)), [x]) => Step::Map(Map::Selu, *x),
        (Primitive::Grove(Call::Run(Operation::Gelu(gelu), _)), [x]) => match gelu.approximate {
            GeluApproximation::None => Step::Map(Map::GeluErf, *x),
            GeluApproximation::Tanh => Step::Map(Map::GeluTanh, *x),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_inputs() {
        let of = |from: &[usize], to: &[usize]| {
            access(&Shape::from(from.to_vec()), &Shape::from(to.to_vec())).map(|access| (access.repeat, access.len))
        };
        assert_eq!(of(&[2, 3, 4], &[2, 3, 4]), Some((1, 24)));
        assert_eq!(of(&[1, 3, 1], &[2, 3, 4]), Some((4, 3)));
        assert_eq!(of(&[3, 4], &[2, 3, 4]), Some((1, 12)));
        assert_eq!(of(&[2, 1, 1], &[2, 3, 4]), Some((12, 2)));
        assert_eq!(of(&[1], &[2, 3, 4]), Some((1, 1)));
        assert_eq!(of(&[2, 1, 4], &[2, 3, 4]), None);
        assert_eq!(of(&[2, 1, 4], &[2, 1, 4]), Some((1, 8)));
        assert_eq!(of(&[1, 1], &[1, 1]), Some((1, 1)));
    }
}
