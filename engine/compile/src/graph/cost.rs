//! Cost of a graph: FLOPs, bytes moved and memory.

use grove_backend::ops::{Call, Operation};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use super::{Equation, Graph, Var};
use crate::{Primitive, primitive::Module};

/// Cost of a set of equations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCost {
    /// Number of equations.
    pub count: usize,
    /// Floating-point operations (FLOPs): two for each multiply-add of a matrix product or convolution, one for each element of
    /// other operations, none for operations that only move elements. A derivative counts as one forward operation for each of
    /// its first two inputs that receive a gradient.
    pub flops: u128,
    /// Size of all inputs and outputs in bytes.
    pub bytes: u128,
}

/// Cost of a graph; see [`Graph::cost`]. Prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Sum over all equations.
    pub total: OperationCost,
    /// Peak memory in bytes: the maximum total size of live arguments, constants and values. Each, including arguments, is
    /// freed after its last use.
    pub peak_bytes: u128,
    /// Cost of each operation by name, in descending order of FLOPs.
    pub by_operation: Vec<(String, OperationCost)>,
    /// Cost of each argument by path, in the order of the arguments; see [`by_path`](Self::by_path).
    pub by_argument: Vec<(String, OperationCost)>,
}

/// Cost of parts of a graph; see [`Cost::by_path`]. Prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCosts {
    /// Cost of each path, in the order of the arguments. Costs that belong to no argument come last, with an empty path.
    pub paths: Vec<(String, OperationCost)>,
    /// Sum over all equations.
    pub total: OperationCost,
}

impl OperationCost {
    pub(super) fn add(&mut self, other: Self) {
        self.count += other.count;
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}

impl Cost {
    /// Returns the cost of each part of the arguments. Paths are truncated to `depth` segments: `blocks.0.attn.qkv.weight`
    /// becomes `blocks.0.attn` at depth 3. If the argument is a tuple, the index in the tuple is the first segment.
    ///
    /// An equation is attributed to
    /// 1. the parameters that it reads: floating-point arguments with a field name in their path, including parameters that
    ///    were only moved or cast before;
    /// 2. otherwise to the parameters of the latest equation that produced one of its inputs: an activation to the layer before
    ///    it. For a derivative, the residuals take precedence over the gradients;
    /// 3. otherwise to the other arguments, by the same two rules;
    /// 4. otherwise to the arguments of the first equation that uses its outputs, if there is one.
    ///
    /// An optimizer step reads all parameters at once. The cost of an equation with several arguments is divided among them in
    /// proportion to their sizes in bytes, and the equation counts for the largest. An equation that uses one output of such an
    /// equation belongs to one argument, by the position of the output, if each argument has the same number of outputs. An
    /// equation that only computes an input of such an equation belongs to the last argument read before that input.
    pub fn by_path(&self, depth: usize) -> PathCosts {
        let mut paths: Vec<(String, OperationCost)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (path, cost) in &self.by_argument {
            let short = path.split('.').take(depth).collect::<Vec<_>>().join(".");
            // Costs without an argument stay separate, even if all paths are truncated to nothing.
            let place = *places.entry(format!("{} {short}", path.is_empty())).or_insert_with(|| {
                paths.push((short, OperationCost::default()));
                paths.len() - 1
            });
            paths[place].1.add(*cost);
        }
        PathCosts { paths, total: self.total }
    }
}

/// Formats a path for display.
pub(super) fn shown(path: &str) -> &str {
    if path.is_empty() { "(none)" } else { path }
}

impl Graph {
    /// Computes the cost of the graph from the shapes and dtypes of its variables.
    ///
    /// The body of control flow is counted as it runs: the body of a scan once per step, the branch with the most FLOPs, and
    /// one step of a loop of unknown length.
    pub fn cost(&self) -> Cost {
        let mut by_operation: BTreeMap<String, OperationCost> = BTreeMap::new();
        let mut total = OperationCost::default();
        let costs: Vec<_> = self.equations.iter().map(|equation| self.cost_of(equation)).collect();
        for (equation, cost) in self.equations.iter().zip(&costs) {
            if let Primitive::HigherOrder(op) = &equation.primitive {
                op.add_cost(&mut total, &mut by_operation);
                continue;
            }
            total.add(*cost);
            by_operation.entry(equation.primitive.name()).or_default().add(*cost);
        }
        let mut by_operation: Vec<_> = by_operation.into_iter().collect();
        by_operation.sort_by_key(|(_, cost)| std::cmp::Reverse((cost.flops, cost.bytes)));
        let by_argument = self.cost_by_path(&costs);
        Cost { total, peak_bytes: self.peak_bytes(), by_operation, by_argument }
    }

    fn cost_of(&self, equation: &Equation) -> OperationCost {
        if let Primitive::HigherOrder(op) = &equation.primitive {
            let mut total = OperationCost::default();
            op.add_cost(&mut total, &mut BTreeMap::new());
            return total;
        }
        let variables = equation.inputs.iter().chain(&equation.outputs).flatten();
        let bytes = variables.map(|var| self.bytes(*var)).sum::<u128>();
        OperationCost { count: 1, flops: self.flops(equation), bytes }
    }

    fn elements(&self, var: Var) -> u128 {
        self.shape(var).iter().map(|size| *size as u128).product()
    }

    /// Returns the number of elements of the variable at a position; 0 if there is none.
    fn elements_at(&self, variables: &[Option<Var>], position: usize) -> u128 {
        variables.get(position).copied().flatten().map_or(0, |var| self.elements(var))
    }

    pub(super) fn bytes(&self, var: Var) -> u128 {
        self.elements(var) * self.dtype(var).size() as u128
    }

    /// Returns the size of an axis, counted from the last one.
    fn size(&self, var: Option<&Option<Var>>, from_last: usize) -> u128 {
        let shape = var.copied().flatten().map(|var| self.shape(var));
        shape.and_then(|shape| Some(shape[shape.num_dims().checked_sub(from_last + 1)?] as u128)).unwrap_or(1)
    }

    fn flops(&self, equation: &Equation) -> u128 {
        // Random keys are arrays of two words and have no FLOPs.
        let keys = usize::from(matches!(equation.primitive, Primitive::WithKey(_)));
        let inputs = &equation.inputs[keys..];
        let input = |i: usize| self.elements_at(inputs, i);
        let output = equation.outputs.iter().flatten().map(|var| self.elements(*var)).sum::<u128>();
        let first = self.elements_at(&equation.outputs, 0);
        match &equation.primitive {
            Primitive::Fused(fused) => (fused.names.len() * fused.chain.len()) as u128,
            Primitive::Unary(_)
            | Primitive::Binary(_)
            | Primitive::BinaryScalar(..)
            | Primitive::Clamp(..)
            | Primitive::Where
            | Primitive::MaskFill(_) => output,
            Primitive::Reduce(..)
            | Primitive::Cumulative(..)
            | Primitive::Argmax(_)
            | Primitive::Argmin(_)
            | Primitive::MaxWithIndices(_)
            | Primitive::MinWithIndices(_) => input(0),
            Primitive::TakeAdd(_) | Primitive::ScatterAdd(_) => input(2),
            Primitive::MatMul => 2 * first * self.size(inputs.first(), 0),
            Primitive::Module(Module::Linear) => 2 * first * self.size(inputs.first(), 0),
            Primitive::Module(Module::LinearInputGrad) => 2 * first * self.size(inputs.first(), 0),
            Primitive::Module(Module::LinearWeightGrad) => 2 * input(0) * self.size(inputs.get(1), 0),
            Primitive::Module(Module::Conv(_)) => 2 * first * self.of_filter(inputs.get(1)),
            Primitive::Module(Module::ConvInputGrad(_) | Module::ConvWeightGrad(_)) => {
                2 * input(2) * self.of_filter(inputs.get(1))
            }
            Primitive::Module(_) => input(0).max(output),
            Primitive::Grove(Call::Run(operation, _)) | Primitive::WithKey(Call::Run(operation, _)) => {
                self.flops_of(operation, inputs, first)
            }
            Primitive::Grove(Call::Vjp(operation, residuals, _))
            | Primitive::WithKey(Call::Vjp(operation, residuals, _)) => {
                let grads = input(*residuals);
                // A product has gradients for both factors; the gradient of a bias is negligible.
                let results = equation.outputs.iter().take(2).flatten().count() as u128;
                results * self.flops_of(operation, &inputs[..*residuals], grads)
            }
            Primitive::TopK(..) | Primitive::ArgTopK(..) => input(0),
            Primitive::Reshape(_)
            | Primitive::SwapAxes(..)
            | Primitive::Transpose(_)
            | Primitive::Flip(_)
            | Primitive::StopGradient
            | Primitive::DebugPrint(_)
            | Primitive::BroadcastTo(_)
            | Primitive::Unfold(..)
            | Primitive::Slice(_)
            | Primitive::UpdateSlice(_)
            | Primitive::Take(_)
            | Primitive::Gather(_)
            | Primitive::Repeat(..)
            | Primitive::Concatenate(_)
            | Primitive::Convert(_)
            | Primitive::Full(..)
            // The FLOPs of the sub-graphs are counted instead.
            | Primitive::HigherOrder(_) => 0,
        }
    }

    /// Returns the number of elements of one filter of a convolution's weight.
    fn of_filter(&self, weight: Option<&Option<Var>>) -> u128 {
        weight.copied().flatten().map_or(1, |var| self.shape(var).iter().skip(1).map(|size| *size as u128).product())
    }

    /// Returns the FLOPs of one of grove's operations whose first output has `output` elements.
    fn flops_of(&self, operation: &Operation, inputs: &[Option<Var>], output: u128) -> u128 {
        let elements = |i: usize| self.elements_at(inputs, i);
        let all = || (0..inputs.len()).map(elements).sum::<u128>();
        match operation {
            Operation::Matmul(_) | Operation::Linear(_) | Operation::QuantizedLinear(_) => {
                2 * output * self.size(inputs.first(), 0)
            }
            Operation::Conv2d(_) | Operation::Conv2dFused(_) => 2 * output * self.of_filter(inputs.get(1)),
            // The scores and their products with the values, for all keys.
            Operation::Attention(_) => 4 * output * self.size(inputs.get(1), 1),
            // Products of the input and of the state with the weights of the gates.
            Operation::Lstm(_) | Operation::Gru(_) | Operation::Rnn(_) => {
                let rows = elements(0) / self.size(inputs.first(), 0).max(1);
                2 * rows * (elements(1) + elements(2))
            }
            Operation::Embedding(_)
            | Operation::Chunk(_)
            | Operation::Concat(_)
            | Operation::UpdateCache(_)
            | Operation::DynamicUpdateSlice(_)
            | Operation::RandomBits(_)
            | Operation::RandomSamples(_)
            | Operation::RandomKeyData(_)
            | Operation::RandomFoldIn(_)
            | Operation::ShardingConstraint(_)
            | Operation::AllReduce(_) => 0,
            Operation::Dequantize(_)
            | Operation::Rope(_)
            | Operation::SwiGlu(_)
            | Operation::Gelu(_)
            | Operation::Selu(_)
            | Operation::MaskedSoftmax(_)
            | Operation::BatchNorm(_)
            | Operation::RowNorm(_)
            | Operation::Dropout(_) => output,
            Operation::MaxPool2d(_) | Operation::Nll(_) | Operation::Argsort(_) => elements(0),
            // The leaves follow the factor.
            Operation::Scale(_) => all() - elements(0),
            Operation::SumOfSquares(_) => all(),
            // Four tensors for each leaf, and the hyperparameters.
            Operation::AdamStep(_) => (all() - elements(inputs.len().saturating_sub(1))) / 4,
        }
    }

    /// Computes [`Cost::peak_bytes`].
    fn peak_bytes(&self) -> u128 {
        let mut last = vec![None; self.variables.len()];
        for (i, equation) in self.equations.iter().enumerate() {
            equation.inputs.iter().chain(&equation.outputs).flatten().for_each(|var| last[var.index()] = Some(i));
        }
        self.outputs.iter().for_each(|(_, var)| last[var.index()] = Some(usize::MAX));
        let constants: u128 = self.constants.iter().map(|(var, _)| self.bytes(*var)).sum();
        self.constants.iter().for_each(|(var, _)| last[var.index()] = Some(usize::MAX));
        let mut held = constants + self.inputs.iter().map(|(_, var)| self.bytes(*var)).sum::<u128>();
        let mut peak = held;
        for (i, equation) in self.equations.iter().enumerate() {
            held += equation.outputs.iter().flatten().map(|var| self.bytes(*var)).sum::<u128>();
            let inside = match &equation.primitive {
                Primitive::HigherOrder(op) => op.peak_bytes_inside(),
                _ => 0,
            };
            peak = peak.max(held + inside);
            let mut ended: Vec<Var> = equation.inputs.iter().chain(&equation.outputs).flatten().copied().collect();
            ended.sort_unstable();
            ended.dedup();
            ended.retain(|var| last[var.index()] == Some(i));
            held -= ended.iter().map(|var| self.bytes(*var)).sum::<u128>();
        }
        peak
    }
}

/// Formats a number with up to three digits and a metric prefix: `12.3 M`.
pub(super) struct Short(pub u128);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut value = self.0 as f64;
        for unit in ["", " k", " M", " G", " T"] {
            if value < 1000.0 {
                let digits = if unit.is_empty() || value >= 100.0 { 0 } else { 1 };
                return f.pad(&format!("{value:.digits$}{unit}"));
            }
            value /= 1000.0;
        }
        f.pad(&format!("{value:.1} P"))
    }
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.by_operation.iter().map(|(name, cost)| (name.as_str(), *cost));
        table(f, "operation", rows.collect(), self.total)?;
        write!(f, "\npeak memory: {} bytes", Short(self.peak_bytes))
    }
}

impl fmt::Display for PathCosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.paths.iter().map(|(path, cost)| (shown(path), *cost));
        table(f, "path", rows.collect(), self.total)
    }
}

/// Writes a table of costs with a final line for the total.
fn table(
    f: &mut fmt::Formatter<'_>,
    head: &str,
    mut rows: Vec<(&str, OperationCost)>,
    total: OperationCost,
) -> fmt::Result {
    rows.push(("total", total));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default().max(head.len());
    write!(f, "{head:width$}  {:>6}  {:>8}  {:>8}", "count", "FLOPs", "bytes")?;
    for (name, cost) in rows {
        write!(f, "\n{name:width$}  {:>6}  {:>8}  {:>8}", cost.count, Short(cost.flops), Short(cost.bytes))?;
    }
    Ok(())
}
