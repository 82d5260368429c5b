//! The cost of a graph: operations of floating-point numbers, bytes that are moved, and memory.

use grove_backend::ops::{Call, Operation};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
};

use super::{Equation, Graph, Var};
use crate::{Primitive, primitive::Module};

/// The cost of some equations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OperationCost {
    /// Number of equations.
    pub count: usize,
    /// Operations of floating-point numbers: two for each product of a sum of products, one for each element of other
    /// functions, none where elements are only moved. A derivative counts as one function for each of the first two inputs that get
    /// a gradient.
    pub flops: u128,
    /// Bytes of all inputs and outputs.
    pub bytes: u128,
}

/// The cost of a graph; see [`Graph::cost`]. It prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cost {
    /// All equations together.
    pub total: OperationCost,
    /// The largest number of bytes that arguments, constants and values hold at once, where each is freed after its last
    /// use, arguments too.
    pub peak_bytes: u128,
    /// The cost of each operation by its name, the one with the most operations of floating-point numbers first.
    pub by_operation: Vec<(String, OperationCost)>,
    /// The cost of each argument by its path, in the order of the arguments; see [`by_path`](Self::by_path).
    pub by_argument: Vec<(String, OperationCost)>,
}

/// The cost of parts of a graph; see [`Cost::by_path`]. It prints as a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathCosts {
    /// The cost of each path, in the order of the arguments. What belongs to no argument comes last, with an empty path.
    pub paths: Vec<(String, OperationCost)>,
    /// All equations together.
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
    /// Returns the cost of each part of the arguments, whose paths are cut after so many names: of `blocks.0.attn.qkv.weight`,
    /// `blocks.0.attn` at a depth of 3. The arguments of a function of a tuple begin with their place in it, which counts.
    ///
    /// An equation belongs to
    /// 1. the parameters that it uses: arguments of floating-point numbers with a name in their path, also if they are only
    ///    moved or converted on the way;
    /// 2. else to those of the latest equation with parameters that gave one of its inputs: an activation to the layer before
    ///    it. For a derivative, the inputs of its own operation go before the gradients;
    /// 3. else to the other arguments in the same two ways;
    /// 4. else to the arguments of the first equation that uses its outputs, as far as that is known.
    ///
    /// A step of an optimizer uses all parameters at once. The cost of an equation with several arguments is divided by their
    /// sizes in bytes, and it counts for the largest. What is computed from such an equation's outputs, or for its inputs alone,
    /// belongs to one argument: by the position of the output among as many for each argument, and for an input to the last
    /// argument before it.
    pub fn by_path(&self, depth: usize) -> PathCosts {
        let mut paths: Vec<(String, OperationCost)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for (path, cost) in &self.by_argument {
            let short = path.split('.').take(depth).collect::<Vec<_>>().join(".");
            // The costs of no argument stay apart, also where all paths are cut to nothing.
            let place = *places.entry(format!("{} {short}", path.is_empty())).or_insert_with(|| {
                paths.push((short, OperationCost::default()));
                paths.len() - 1
            });
            paths[place].1.add(*cost);
        }
        PathCosts { paths, total: self.total }
    }
}

/// A path for people.
pub(super) fn shown(path: &str) -> &str {
    if path.is_empty() { "(none)" } else { path }
}

impl Graph {
    /// Returns the cost of the graph, from the shapes and types of its variables alone.
    ///
    /// The inside of control flow is counted as it runs: a scan's body once for each step, the branch with the most operations
    /// of floating-point numbers, and one step of a loop of unknown length.
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

    pub(super) fn bytes(&self, var: Var) -> u128 {
        self.elements(var) * self.dtype(var).size() as u128
    }

    /// The size of an axis, counted from the last one.
    fn size(&self, var: Option<&Option<Var>>, from_last: usize) -> u128 {
        let shape = var.copied().flatten().map(|var| self.shape(var));
        shape.and_then(|shape| Some(shape[shape.num_dims().checked_sub(from_last + 1)?] as u128)).unwrap_or(1)
    }

    fn flops(&self, equation: &Equation) -> u128 {
        // Random keys are two words.
        let keys = usize::from(matches!(equation.primitive, Primitive::WithKey(_)));
        let inputs = &equation.inputs[keys..];
        let input = |i: usize| inputs.get(i).copied().flatten().map_or(0, |var| self.elements(var));
        let output = equation.outputs.iter().flatten().map(|var| self.elements(*var)).sum::<u128>();
        let first = equation.outputs.first().copied().flatten().map_or(0, |var| self.elements(var));
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
                let grads = inputs.get(*residuals).copied().flatten().map_or(0, |var| self.elements(var));
                // Of a product, the gradients of both factors; that of a bias is small beside them.
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
            // Those of its sub-graphs are counted.
            | Primitive::HigherOrder(_) => 0,
        }
    }

    /// Elements of one filter of a convolution's weight.
    fn of_filter(&self, weight: Option<&Option<Var>>) -> u128 {
        weight.copied().flatten().map_or(1, |var| self.shape(var).iter().skip(1).map(|size| *size as u128).product())
    }

    /// Operations of one of grove's operations whose first output has so many elements.
    fn flops_of(&self, operation: &Operation, inputs: &[Option<Var>], output: u128) -> u128 {
        match operation {
            Operation::Matmul(_) | Operation::Linear(_) | Operation::QuantizedLinear(_) => {
                2 * output * self.size(inputs.first(), 0)
            }
            Operation::Conv2d(_) | Operation::Conv2dFused(_) => 2 * output * self.of_filter(inputs.get(1)),
            // Scores and their products with the values, of all keys.
            Operation::Attention(_) => 4 * output * self.size(inputs.get(1), 1),
            // Products of the input and of the state with the gates' weights.
            Operation::Lstm(_) | Operation::Gru(_) | Operation::Rnn(_) => {
                let elements = |i: usize| inputs.get(i).copied().flatten().map_or(0, |var| self.elements(var));
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
            | Operation::AllReduce(_) => 0,
            _ => output,
        }
    }

    /// See [`Cost::peak_bytes`].
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

/// `12.3 M`: a number with three digits and a prefix.
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

/// Writes a table of costs, with a last line of their total.
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
