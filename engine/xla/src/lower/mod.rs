//! Lowering of graphs to StableHLO, the input language of OpenXLA's compilers.

mod all_reduce;
mod builder;
mod control;
mod custom_call;
mod debug_print;
mod elementwise;
mod equation;
mod literal;
mod modules;
mod movement;
mod quantized;
mod random;
mod recurrent;
mod reduce;
mod value;

use burn::tensor::DType;
use grove_backend::ops::{Call, Operation};
use grove_compile::{Graph, Primitive, Var};
use std::collections::HashMap;

use crate::{ArrayType, ElementType, Mesh, PartitionSpec};
pub(crate) use all_reduce::register;
use builder::Builder;
pub(crate) use debug_print::register as register_prints;
use value::{Mlir, Value, joined, types};

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
    let graph = graph.clone().decomposed_except(is_lowered_directly);
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
    let parameters = lowering.parameters(&graph, options)?;
    let arguments = parameters.iter().take(graph.inputs().len()).map(|(value, _)| value.clone()).collect();
    let keys = graph.keys();
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
    let text = module(&parameters, &results, &lowering.lines.into_text(), options.shardings);
    Ok(Lowered {
        text,
        parameters: parameters.into_iter().map(|(value, _)| value.array).collect(),
        results: results.into_iter().map(|value| value.array).collect(),
        reduces: graph.meets_ranks(),
        prints: lowering.printed,
    })
}

/// Formats a module with a function `main`. `body` are the lines before its end.
fn module(parameters: &[(Value, String)], results: &[Value], body: &str, shardings: Option<Shardings<'_>>) -> String {
    let parameter = |(value, rest): &(Value, String)| format!("{value}: {}{rest}", Mlir(&value.array));
    let result = |(i, value): (usize, &Value)| {
        let sharding = shardings.map(|of| of.attribute(of.outputs, i, value.rank()));
        format!("{}{}", Mlir(&value.array), attributes(sharding))
    };
    let (of_mesh, mesh) = match shardings {
        Some(Shardings { mesh, .. }) => (
            format!(" attributes {{mhlo.num_partitions = {} : i32}}", mesh.devices().len()),
            format!("  {}\n", mesh.declaration()),
        ),
        None => Default::default(),
    };
    let text = format!(
        "module @grove{of_mesh} {{\n{mesh}  func.func public @main({}) -> ({}) {{\n{body}    return {} : {}\n  }}\n}}\n",
        joined(parameters.iter().map(parameter)),
        joined(results.iter().enumerate().map(result)),
        joined(results),
        types(results),
    );
    // MLIR's `return` without values has no types.
    text.replace("    return  : \n", "    return\n")
}

/// Formats the attributes of an argument or a result; empty if there are none.
fn attributes(list: impl IntoIterator<Item = String>) -> String {
    let list: Vec<String> = list.into_iter().collect();
    if list.is_empty() { String::new() } else { format!(" {{{}}}", list.join(", ")) }
}

/// Returns true for grove's operations that are lowered directly.
fn is_lowered_directly(call: &Call) -> bool {
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
    /// Declares the inputs, the random keys and the order token. Returns each with what follows its type in the text.
    fn parameters(&mut self, graph: &Graph, options: &LowerOptions<'_>) -> Result<Vec<(Value, String)>> {
        let mut parameters = Vec::new();
        for (i, (path, var)) in graph.inputs().iter().enumerate() {
            let value = Value::named(format!("%arg{i}"), array_type(graph, *var)?);
            let output = options.donated.get(i).copied().flatten();
            let alias = output.map(|output| format!("tf.aliasing_output = {output} : i32"));
            let sharding = options.shardings.map(|of| of.attribute(of.inputs, i, value.rank()));
            let attributes = attributes(alias.into_iter().chain(sharding));
            parameters.push((value, format!("{attributes} loc({path:?})")));
        }
        for (i, (path, key)) in graph.keys().inputs.iter().enumerate() {
            let value = Value::named(format!("%key{i}"), ArrayType::new(ElementType::U32, [2]));
            let sharding = attributes(options.shardings.map(|of| of.attribute(&[], 0, 1)));
            self.keys.insert(key.words(), value.clone());
            parameters.push((value, format!("{sharding} loc({path:?})")));
        }
        if graph.meets_ranks() {
            let value = Value::named("%order".into(), order_type());
            self.order = Some(value.clone());
            parameters.push((value, String::new()));
        }
        Ok(parameters)
    }

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
}
