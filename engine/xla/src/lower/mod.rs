//! Lowering of graphs to StableHLO, the input language of OpenXLA's compilers.

mod all_reduce;
mod builder;
mod control;
mod debug_print;
mod elementwise;
mod literal;
mod modules;
mod movement;
mod quantized;
mod random;
mod recurrent;
mod reduce;

use burn::tensor::DType;
use grove_backend::ops::{Call, Operation};
use grove_compile::{Equation, Graph, Primitive, Var, primitive::Reduction};
use std::collections::HashMap;

use crate::{ArrayType, ElementType, Mesh, PartitionSpec};
pub(crate) use all_reduce::register;
use builder::{Builder, Mlir, Value, joined, types};
pub(crate) use debug_print::register as register_prints;

/// A graph that cannot be expressed in StableHLO.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("the operation {operation} cannot be lowered to StableHLO: {reason}")]
pub struct LowerError {
    /// Name of the operation.
    pub operation: String,
    /// The feature that StableHLO, or grove's lowering, lacks.
    pub reason: String,
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for LowerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

type Result<T> = std::result::Result<T, LowerError>;

/// A graph as a module of StableHLO: `jax.jit(f).lower(args)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lowered {
    /// The module, in MLIR's text form. Its function `main` takes the graph's inputs, followed by its random keys of two words
    /// each, and returns the outputs, followed by the keys of the result. If the graph all-reduces over ranks, the last parameter
    /// and the last result are the token that orders the all-reduces.
    pub text: String,
    /// Types of the parameters of `main`.
    pub parameters: Vec<ArrayType>,
    /// Types of the results of `main`.
    pub results: Vec<ArrayType>,
    /// True if the program all-reduces over ranks; see [`text`](Self::text).
    pub reduces: bool,
    /// True if the program has debug prints.
    pub prints: bool,
}

/// Returns the type of the token that orders all-reduces over ranks.
pub(crate) fn order_type() -> ArrayType {
    ArrayType::new(ElementType::F32, [])
}

/// Options of [`lower`].
#[derive(Clone, Debug, Default)]
pub struct LowerOptions<'a> {
    /// For each input of the graph, in order, the output that may reuse its memory: JAX's `donate_argnums`. Missing inputs are
    /// not donated.
    pub donated: Vec<Option<usize>>,
    /// Distribution of arrays over a mesh, for a program on several devices.
    pub shardings: Option<Shardings<'a>>,
    /// Number of replicas for all-reduces over ranks, which then are XLA's collectives. If 0, they are calls of a function
    /// registered with the CPU plugin.
    pub replicas: usize,
    /// If true, debug prints are calls of a function registered with the CPU plugin. Otherwise they print nothing.
    pub prints: bool,
}

/// Distribution of a graph's inputs and outputs over a mesh. Random keys and arrays without a specification are replicated.
#[derive(Clone, Copy, Debug)]
pub struct Shardings<'a> {
    /// The mesh.
    pub mesh: &'a Mesh,
    /// Specifications of the inputs, in order.
    pub inputs: &'a [PartitionSpec],
    /// Specifications of the outputs.
    pub outputs: &'a [PartitionSpec],
}

impl Shardings<'_> {
    /// Returns the sharding attribute of an array.
    fn attribute(&self, specs: &[PartitionSpec], i: usize, rank: usize) -> String {
        self.mesh.attribute(specs.get(i).unwrap_or(&PartitionSpec::replicated()), rank)
    }
}

/// Conversion of graphs to StableHLO text.
pub trait ToStableHlo {
    /// Returns the graph as a StableHLO module in MLIR's text form, which OpenXLA's plugins and JAX's compiler read. The
    /// locations of arguments are their paths.
    ///
    /// # Errors
    /// If an operation has no counterpart.
    fn to_stablehlo(&self) -> std::result::Result<String, LowerError>;
}

impl ToStableHlo for Graph {
    fn to_stablehlo(&self) -> Result<String> {
        Ok(lower(self, &LowerOptions::default())?.text)
    }
}

/// Lowers a graph to StableHLO. Grove's own operations are lowered directly if they have a counterpart, otherwise decomposed.
///
/// Indices out of range, for which Burn's backends panic, are clamped, as in JAX.
///
/// # Errors
/// If an operation has no counterpart.
pub fn lower(graph: &Graph, options: &LowerOptions<'_>) -> Result<Lowered> {
    let graph = graph.clone().decomposed_except(stays);
    let mesh = options.shardings.map(|shardings| shardings.mesh);
    let mut lowering = Lowering {
        lines: Builder::default(),
        keys: HashMap::new(),
        mesh,
        order: None,
        replicas: options.replicas,
        prints: options.prints,
        printed: false,
    };
    let mut parameters = Vec::new();
    let mut arguments = Vec::new();
    for (i, (path, var)) in graph.inputs().iter().enumerate() {
        let array = array_type(&graph, *var)?;
        let alias =
            options.donated.get(i).copied().flatten().map(|output| format!("tf.aliasing_output = {output} : i32"));
        let sharding = options.shardings.map(|of| of.attribute(of.inputs, i, array.dims.len()));
        let value = Builder::named(format!("%arg{i}"), array);
        let attributes = attributes(alias.into_iter().chain(sharding));
        parameters.push(format!("{value}: {}{attributes} loc({path:?})", Mlir(&value.array)));
        arguments.push(value);
    }
    let mut all = arguments.clone();
    let keys = graph.keys();
    for (i, (path, key)) in keys.inputs.iter().enumerate() {
        let value = Builder::named(format!("%key{i}"), ArrayType::new(ElementType::U32, [2]));
        let sharding = attributes(options.shardings.map(|of| of.attribute(&[], 0, 1)));
        parameters.push(format!("{value}: {}{sharding} loc({path:?})", Mlir(&value.array)));
        lowering.keys.insert(key.words(), value.clone());
        all.push(value);
    }
    let reduces = graph.meets_ranks();
    if reduces {
        let value = Builder::named("%order".into(), order_type());
        parameters.push(format!("{value}: {}", Mlir(&value.array)));
        lowering.order = Some(value.clone());
        all.push(value);
    }
    for derived in &keys.derived {
        let parent = lowering.key(derived.parent.words());
        let child = lowering.lines.child_key(&parent, derived.index);
        lowering.keys.insert(derived.key.words(), child);
    }
    let mut results = lowering.graph(&graph, arguments)?;
    for (_, key) in &keys.outputs {
        results.push(lowering.key(key.words()));
    }
    results.extend(lowering.order.take());
    let array = |value: &Value| value.array.clone();
    let result = |(i, value): (usize, &Value)| {
        let sharding = options.shardings.map(|of| of.attribute(of.outputs, i, value.rank()));
        format!("{}{}", Mlir(&value.array), attributes(sharding))
    };
    let (of_mesh, mesh) = match options.shardings {
        Some(Shardings { mesh, .. }) => (
            format!(" attributes {{mhlo.num_partitions = {} : i32}}", mesh.devices().len()),
            format!("  {}\n", mesh.declaration()),
        ),
        None => Default::default(),
    };
    let text = format!(
        "module @grove{of_mesh} {{\n{mesh}  func.func public @main({}) -> ({}) {{\n{}    return {} : {}\n  }}\n}}\n",
        parameters.join(", "),
        joined(results.iter().enumerate().map(result)),
        lowering.lines.into_text(),
        joined(&results),
        types(&results),
    );
    // MLIR's `return` without values has no types.
    let text = text.replace("    return  : \n", "    return\n");
    let (parameters, results) = (all.iter().map(array).collect(), results.iter().map(array).collect());
    Ok(Lowered { text, parameters, results, reduces, prints: lowering.printed })
}

/// Formats the attributes of an argument or a result; empty if there are none.
fn attributes(list: impl IntoIterator<Item = String>) -> String {
    let list: Vec<String> = list.into_iter().collect();
    if list.is_empty() { String::new() } else { format!(" {{{}}}", list.join(", ")) }
}

/// Returns true for grove's operations that are lowered directly.
fn stays(call: &Call) -> bool {
    let (Call::Run(operation, _) | Call::Vjp(operation, ..)) = call;
    if recurrent::is_loop(operation) {
        return true;
    }
    matches!(
        call,
        Call::Run(
            Operation::Dropout(_)
                | Operation::RandomBits(_)
                | Operation::RandomSamples(_)
                | Operation::Argsort(_)
                | Operation::RandomKeyData(_)
                | Operation::RandomFoldIn(_)
                | Operation::DynamicUpdateSlice(_)
                | Operation::ShardingConstraint(_)
                | Operation::AllReduce(_),
            _
        ) | Call::Vjp(Operation::Dropout(_) | Operation::ShardingConstraint(_), ..)
    )
}

/// Returns the type of a variable.
fn array_type(graph: &Graph, var: Var) -> Result<ArrayType> {
    Ok(ArrayType::new(element_type(graph.dtype(var))?, &graph.shape(var)[..]))
}

/// Returns the element type of a dtype.
pub(crate) fn element_type(dtype: DType) -> Result<ElementType> {
    ElementType::of_dtype(dtype)
        .ok_or_else(|| LowerError { operation: format!("{dtype:?}"), reason: "arrays of it have no type there".into() })
}

/// State of the lowering.
struct Lowering<'a> {
    lines: Builder,
    /// Random keys by the words that represent them in the graph.
    keys: HashMap<[u32; 2], Value>,
    /// The mesh of the program, if it runs on several devices.
    mesh: Option<&'a Mesh>,
    /// The token of the last all-reduce over ranks, for the next one to wait for; `None` if the graph has no all-reduces, and in
    /// the conditions of loops.
    order: Option<Value>,
    /// See [`LowerOptions::replicas`].
    replicas: usize,
    /// See [`LowerOptions::prints`].
    prints: bool,
    /// True if the program prints.
    printed: bool,
}

impl Lowering<'_> {
    /// Appends the lines of a graph and returns its results for `arguments`.
    fn graph(&mut self, graph: &Graph, arguments: Vec<Value>) -> Result<Vec<Value>> {
        let inputs = graph.inputs().iter().map(|(_, var)| *var);
        let mut values: HashMap<Var, Value> = inputs.zip(arguments).collect();
        for (var, data) in graph.constants() {
            let array = array_type(graph, *var)?;
            let value = match array.element {
                ElementType::Bool => self.lines.values(array, data.iter::<bool>()),
                _ => {
                    let data = data.clone().convert_dtype(graph.dtype(*var));
                    self.lines.bytes(array, data.as_bytes())
                }
            };
            values.insert(*var, value);
        }
        for equation in graph.equations() {
            let inputs: Vec<Option<Value>> = equation.inputs.iter().map(|var| values.get(&(*var)?).cloned()).collect();
            let arrays: Vec<Option<ArrayType>> = equation
                .outputs
                .iter()
                .map(|var| var.map(|var| array_type(graph, var)).transpose())
                .collect::<Result<_>>()?;
            let outputs = match &equation.primitive {
                Primitive::Grove(Call::Run(Operation::AllReduce(sum), _)) => Some(self.all_reduce(sum, &inputs)?),
                Primitive::Grove(call) => self.recurrent(call, &inputs)?,
                _ => None,
            };
            let outputs = match outputs {
                Some(outputs) => outputs,
                None => self.equation(equation, inputs, &arrays)?.into_iter().map(Some).collect(),
            };
            let named = equation.outputs.iter().zip(outputs).filter_map(|(var, value)| Some(((*var)?, value?)));
            values.extend(named);
        }
        Ok(graph.outputs().iter().map(|(_, var)| values[var].clone()).collect())
    }

    /// Returns the types of the results of a graph.
    fn outputs(&self, graph: &Graph) -> Result<Vec<ArrayType>> {
        graph.outputs().iter().map(|(_, var)| array_type(graph, *var)).collect()
    }

    /// Returns the value of a key.
    fn key(&mut self, words: [u32; 2]) -> Value {
        match self.keys.get(&words) {
            Some(key) => key.clone(),
            // A constant key of the graph.
            None => self.lines.key(words),
        }
    }

    fn equation(
        &mut self,
        equation: &Equation,
        inputs: Vec<Option<Value>>,
        arrays: &[Option<ArrayType>],
    ) -> Result<Vec<Value>> {
        let refused = |reason: &str| LowerError { operation: equation.primitive.name(), reason: reason.into() };
        if let Primitive::Grove(
            Call::Run(Operation::ShardingConstraint(constraint), _)
            | Call::Vjp(Operation::ShardingConstraint(constraint), ..),
        ) = &equation.primitive
        {
            // Without residuals; the last input is the gradient.
            let x = inputs.into_iter().flatten().next_back().ok_or_else(|| refused("it has no input"))?;
            let spec = PartitionSpec::from(constraint.clone());
            return Ok(vec![match self.mesh {
                Some(mesh) => {
                    mesh.part_dims(&spec, &x.array.dims).map_err(|reason| refused(&reason))?;
                    self.lines.constrained(&x, &mesh.sharding(&spec, x.rank()))
                }
                None => x,
            }]);
        }
        if let Primitive::Grove(call) | Primitive::WithKey(call) = &equation.primitive {
            let with_key = matches!(equation.primitive, Primitive::WithKey(_));
            let found = self.grove(call, with_key, inputs, arrays);
            return found.map(|value| vec![value]).ok_or_else(|| refused("it is neither composed nor known"));
        }
        let inputs: Vec<Value> = inputs.into_iter().flatten().collect();
        let given: Vec<ArrayType> = arrays.iter().flatten().cloned().collect();
        let Some(array) = given.first() else { return Err(refused("it has no results")) };
        let element = array.element;
        let lines = &mut self.lines;
        let one = match (&equation.primitive, &inputs[..]) {
            (Primitive::Unary(op), [x]) => lines.elementwise(*op, x),
            (Primitive::Binary(op), [a, b]) => lines.pairwise(*op, a, b),
            (Primitive::BinaryScalar(op, number), [x]) => lines.with_number(*op, x, (*number).into()),
            (Primitive::Reduce(op, axis), [x]) => lines.reduction(*op, x, *axis),
            (Primitive::Argmax(axis), [x]) => lines.arg_extreme(x, *axis, Reduction::Max, element),
            (Primitive::Argmin(axis), [x]) => lines.arg_extreme(x, *axis, Reduction::Min, element),
            (Primitive::TopK(axis, k), [x]) => {
                let [values, _] = lines.largest(x, *axis, *k, ElementType::I32);
                values
            }
            (Primitive::ArgTopK(axis, k), [x]) => {
                let [_, positions] = lines.largest(x, *axis, *k, element);
                positions
            }
            (Primitive::MaxWithIndices(axis) | Primitive::MinWithIndices(axis), [x]) => {
                let least = matches!(equation.primitive, Primitive::MinWithIndices(_));
                let op = if least { Reduction::Min } else { Reduction::Max };
                let values = lines.reduction(op, x, Some(*axis));
                return Ok(vec![values, lines.arg_extreme(x, *axis, op, given[1].element)]);
            }
            (Primitive::Cumulative(op, axis), [x]) => lines.cumulative(*op, x, *axis),
            (Primitive::Clamp(min, max), [x]) => lines.clamp(x, (*min).into(), (*max).into()),
            (Primitive::Where, [x, mask, y]) => lines.choose(x, mask, y),
            (Primitive::MaskFill(value), [x, mask]) => {
                let value = lines.full(x.with_dims(vec![1; x.rank()]), *value);
                lines.choose(x, mask, &value)
            }
            (Primitive::Reshape(shape), [x]) => lines.reshape(x, shape),
            (Primitive::SwapAxes(a, b), [x]) => {
                let mut axes: Vec<usize> = (0..x.rank()).collect();
                axes.swap(*a, *b);
                lines.transpose(x, &axes)
            }
            (Primitive::Transpose(axes), [x]) => lines.transpose(x, axes),
            (Primitive::Flip(axes), [x]) => lines.reverse(x, axes),
            (Primitive::StopGradient, [x]) => x.clone(),
            (Primitive::DebugPrint(name), [x]) if self.prints => {
                self.printed = true;
                lines.printed(name, x.clone())
            }
            (Primitive::DebugPrint(name), [x]) => {
                eprintln!(
                    "the debug print of `{name}` was left out of the program: programs of XLA print only on the CPU"
                );
                x.clone()
            }
            (Primitive::BroadcastTo(shape), [x]) => lines.broadcast_to(x, shape),
            (Primitive::Unfold(axis, size, step), [x]) => lines.unfold(x, *axis, *size, *step),
            (Primitive::Slice(ranges), [x]) => lines.part(x, ranges),
            (Primitive::UpdateSlice(ranges), [x, part]) => lines.with_part(x, part, ranges),
            (Primitive::Take(axis), [x, positions]) => lines.take(x, positions, *axis),
            (Primitive::TakeAdd(axis), [x, positions, part]) => lines.take_add(x, positions, part, *axis),
            (Primitive::Gather(axis), [x, positions]) => lines.gather(x, positions, *axis),
            (Primitive::ScatterAdd(axis), [x, positions, part]) => lines.scatter_add(x, positions, part, *axis),
            (Primitive::Repeat(axis, times), [x]) => lines.repeat(x, *axis, *times),
            (Primitive::Concatenate(axis), parts) => lines.concatenate(parts, *axis),
            (Primitive::Convert(_), [x]) => lines.convert(x, element),
            (Primitive::Full(_, _, value), []) => lines.full(array.clone(), *value),
            (Primitive::MatMul, [a, b]) => lines.matmul(a, b, element),
            (Primitive::Module(module), inputs) => return Ok(lines.module(module, inputs, &given)),
            (Primitive::HigherOrder(op), _) => return self.higher_order(op, inputs),
            _ => return Err(refused(&format!("it has {} inputs", inputs.len()))),
        };
        Ok(vec![one])
    }

    /// Lowers one of grove's operations for which [stays](stays) returns true. Its key is its first input or a static parameter.
    /// `None` for other operations.
    fn grove(
        &mut self,
        call: &Call,
        with_key: bool,
        inputs: Vec<Option<Value>>,
        arrays: &[Option<ArrayType>],
    ) -> Option<Value> {
        let array = arrays.first()?.as_ref()?;
        let mut inputs: Vec<Value> = inputs.into_iter().flatten().collect();
        let key = match with_key {
            true => Some(inputs.remove(0)),
            false => call.clone().key_mut().copied().map(|words| self.key(words)),
        };
        let lines = &mut self.lines;
        match (call, key, &inputs[..]) {
            (Call::Run(Operation::Dropout(dropout), _), Some(key), [x]) => Some(lines.dropout(dropout, &key, x)),
            // Without residuals; the last input is the gradient.
            (Call::Vjp(Operation::Dropout(dropout), ..), Some(key), [.., grad]) => {
                Some(lines.dropout(dropout, &key, grad))
            }
            (Call::Run(Operation::RandomBits(bits), _), Some(key), _) => Some(lines.random_bits(bits, &key, array)),
            (Call::Run(Operation::RandomSamples(samples), _), Some(key), _) => {
                Some(lines.random_samples(samples, &key, array))
            }
            (Call::Run(Operation::Argsort(argsort), _), _, [x]) => Some(lines.argsort(argsort, x, array.element)),
            (Call::Run(Operation::RandomKeyData(_), _), key, _) => key,
            (Call::Run(Operation::RandomFoldIn(_), _), _, [key, data]) => Some(lines.child_keys(key, data)),
            (Call::Run(Operation::Dequantize(matrix), _), _, [blocks]) => {
                Some(lines.dequantized(matrix.format, blocks))
            }
            (Call::Run(Operation::DynamicUpdateSlice(update), _), _, [whole, part, position]) => {
                let (at, zero) = (lines.reshape(position, &[]), lines.scalar(position.element(), 0_usize));
                let starts: Vec<Value> =
                    (0..whole.rank()).map(|axis| if axis == update.axis { at.clone() } else { zero.clone() }).collect();
                Some(lines.dynamic_update_slice(whole, part, &starts))
            }
            _ => None,
        }
    }
}
