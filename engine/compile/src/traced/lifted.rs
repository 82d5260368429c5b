//! Turning scalars and random keys into arguments of a program, so that a new learning rate, position or key does not need a
//! new compilation.

use burn::tensor::{DType, TensorData, bf16, f16};
use burn_ir::ScalarIr;
use grove_backend::ops::Spec;
use grove_tree::Key;

use crate::{
    Primitive,
    graph::{Equation, Graph, Keys, Var, keys_in},
    primitive::Binary,
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop},
};

/// First word of the placeholder keys for arguments. Any odd constant would do.
const PLACEHOLDERS: u32 = 0x7A3B_9E15;

/// A program without its scalars and keys, and their values.
pub(super) struct Lifted {
    pub graph: Graph,
    /// Scalars of each dtype: the last arguments.
    pub numbers: Vec<TensorData>,
    /// Random keys.
    pub keys: Vec<Key>,
}

/// Turns the scalars and random keys of a graph into arguments.
pub(super) fn lifted(mut graph: Graph) -> Lifted {
    let vectors = lift_numbers(&mut graph, |_| false);
    let keys = lift_keys(&mut graph);
    let mut numbers = Vec::with_capacity(vectors.len());
    for Vector { dtype, var, values } in vectors {
        graph.inputs.push((name(dtype), var));
        numbers.push(data(values, dtype));
    }
    Lifted { graph, numbers, keys }
}

/// A graph without its scalars, and their values.
pub(crate) struct WithoutNumbers {
    graph: Graph,
    numbers: Vec<Vector>,
}

impl SubGraph {
    /// Returns the graph with its scalars as arguments, if it has any. Computed once.
    fn without_numbers(&self) -> Option<&WithoutNumbers> {
        self.memo(|| WithoutNumbers::of(self)).as_ref()
    }
}

impl WithoutNumbers {
    /// Lifts the scalars of a sub-graph, except common ones such as 0 and 1; `None` if there are no others.
    pub(crate) fn of(graph: &Graph) -> Option<Self> {
        let mut graph = graph.clone();
        let numbers = lift_numbers(&mut graph, is_common);
        (!numbers.is_empty()).then_some(Self { graph, numbers })
    }
}

/// Scalars of one dtype, passed as one argument.
struct Vector {
    dtype: DType,
    var: Var,
    values: Vec<f64>,
}

/// State of lifting: the graph without scalars, and the scalars.
struct Lifting {
    variables: Vec<Spec>,
    equations: Vec<Equation>,
    vectors: Vec<Vector>,
    boolean: DType,
}

/// Lifts the scalars of a graph, except those for which `stays` is true. The returned vectors must still be added as arguments.
fn lift_numbers(graph: &mut Graph, stays: fn(f64) -> bool) -> Vec<Vector> {
    let mut lifting = Lifting {
        variables: std::mem::take(&mut graph.variables),
        equations: Vec::with_capacity(graph.equations.len()),
        vectors: Vec::new(),
        boolean: DType::Bool(graph.types.boolean),
    };
    for equation in std::mem::take(&mut graph.equations) {
        lifting.add(equation, stays);
    }
    (graph.variables, graph.equations) = (lifting.variables, lifting.equations);
    for vector in &lifting.vectors {
        graph.variables[vector.var.index()].shape = [vector.values.len()].into();
    }
    lifting.vectors
}

impl Lifting {
    fn add(&mut self, equation: Equation, stays: fn(f64) -> bool) {
        if let Primitive::HigherOrder(op) = &equation.primitive {
            let (op, inputs) = self.higher_order(op, equation.inputs);
            return self.equations.push(Equation { primitive: Primitive::HigherOrder(op), inputs, ..equation });
        }
        // The scalars, and the predicate for scalars that are not lifted.
        let (numbers, common): (Vec<ScalarIr>, fn(f64) -> bool) = match &equation.primitive {
            Primitive::BinaryScalar(op, number) if varies(*op) => (vec![*number], stays),
            Primitive::Full(_, _, number) | Primitive::MaskFill(number) => (vec![*number], is_common),
            Primitive::Clamp(min, max) => (vec![*min, *max], is_common),
            _ => (Vec::new(), stays),
        };
        let values: Vec<f64> = numbers.iter().filter_map(|number| exact(*number)).collect();
        let output = equation.outputs.first().copied().flatten();
        let (Some(output), false) = (output, values.len() < numbers.len() || values.iter().all(|x| common(*x))) else {
            return self.equations.push(equation);
        };
        // The output of a comparison has another dtype than its input.
        let like = equation.inputs.first().copied().flatten().unwrap_or(output);
        let Spec { shape, dtype } = self.variables[like.index()].clone();
        if !is_number(dtype) {
            return self.equations.push(equation);
        }
        let vars: Vec<Var> = values.into_iter().map(|value| self.number(value, dtype, shape.num_dims())).collect();
        match (&equation.primitive, &vars[..]) {
            (Primitive::BinaryScalar(op, _), [number]) => {
                let primitive = Primitive::Binary(*op);
                self.equations.push(Equation { primitive, inputs: vec![Some(like), Some(*number)], ..equation });
            }
            (Primitive::MaskFill(_), [number]) => {
                let number = self.whole(*number, &shape, dtype);
                let inputs = [&equation.inputs[..], &[Some(number)]].concat();
                self.equations.push(Equation { primitive: Primitive::Where, inputs, ..equation });
            }
            (Primitive::Clamp(..), [min, max]) => {
                let above = self.variable(shape.to_vec(), dtype);
                self.bound(Binary::Lt, like, *min, above);
                self.bound(Binary::Gt, above, *max, output);
            }
            (_, [number, ..]) => self.push(Primitive::BroadcastTo(shape.to_vec()), &[*number], output),
            (_, []) => self.equations.push(equation),
        }
    }

    /// Replaces the elements for which a comparison with a scalar is true by the scalar.
    fn bound(&mut self, op: Binary, x: Var, number: Var, output: Var) {
        let Spec { shape, dtype } = self.variables[x.index()].clone();
        let number = self.whole(number, &shape, dtype);
        let mask = self.variable(shape.to_vec(), self.boolean);
        self.push(Primitive::Binary(op), &[x, number], mask);
        self.push(Primitive::Where, &[x, mask, number], output);
    }

    /// Broadcasts a scalar to a shape.
    fn whole(&mut self, number: Var, shape: &[usize], dtype: DType) -> Var {
        let whole = self.variable(shape.to_vec(), dtype);
        self.push(Primitive::BroadcastTo(shape.to_vec()), &[number], whole);
        whole
    }

    fn variable(&mut self, shape: Vec<usize>, dtype: DType) -> Var {
        self.variables.push(Spec { shape: shape.into(), dtype });
        Var(self.variables.len() as u32 - 1)
    }

    fn push(&mut self, primitive: Primitive, inputs: &[Var], output: Var) {
        let inputs = inputs.iter().copied().map(Some).collect();
        self.equations.push(Equation { primitive, inputs, outputs: vec![Some(output)] });
    }

    /// Appends scalars to the vector of their dtype. Returns a slice of the vector.
    fn numbers(&mut self, values: &[f64], dtype: DType) -> Var {
        let known = self.vectors.iter().position(|vector| vector.dtype == dtype).unwrap_or_else(|| {
            let var = self.variable(vec![0], dtype);
            self.vectors.push(Vector { dtype, var, values: Vec::new() });
            self.vectors.len() - 1
        });
        let part = self.variable(vec![values.len()], dtype);
        let Vector { var, values: all, .. } = &mut self.vectors[known];
        let (vector, at) = (*var, all.len());
        all.extend(values);
        self.push(Primitive::Slice(vec![(at..at + values.len()).into()]), &[vector], part);
        part
    }

    /// Appends a scalar and returns it as an array of one element with the given rank.
    fn number(&mut self, value: f64, dtype: DType, rank: usize) -> Var {
        let (part, number) = (self.numbers(&[value], dtype), self.variable(vec![1; rank], dtype));
        self.push(Primitive::Reshape(vec![1; rank]), &[part], number);
        number
    }

    /// Lifts the scalars of an operation's sub-graphs. Returns the new operation and its inputs.
    fn higher_order(&mut self, op: &HigherOrder, mut inputs: Vec<Option<Var>>) -> (HigherOrder, Vec<Option<Var>>) {
        let graphs: Vec<&SubGraph> = op.sub_graphs().into_iter().map(|(_, graph)| graph).collect();
        if graphs.iter().all(|graph| graph.without_numbers().is_none()) {
            return (op.clone(), inputs);
        }
        // Position of the new arguments among the inputs and in the sub-graphs.
        let (at, within) = match op {
            HigherOrder::While(WhileLoop { consts, .. }) | HigherOrder::Scan(ScanLoop { consts, .. }) => {
                (*consts, *consts)
            }
            HigherOrder::Cond { .. } => (inputs.len(), inputs.len() - 1),
            HigherOrder::CustomJvp { .. } | HigherOrder::CustomVjp { .. } => (inputs.len(), inputs.len()),
        };
        let all: Vec<&Vector> = graphs.iter().flat_map(|graph| numbers_of(graph)).collect();
        let added: Vec<_> = all.iter().map(|vector| Some(self.numbers(&vector.values, vector.dtype))).collect();
        let count = added.len();
        inputs.splice(at..at, added);
        // Each sub-graph takes the scalars of all sub-graphs.
        let mut before = 0;
        let new = graphs.iter().map(|sub_graph| {
            let own = numbers_of(sub_graph);
            let mut graph = sub_graph.without_numbers().map_or(&***sub_graph, |without| &without.graph).clone();
            let mut arguments = Vec::with_capacity(count);
            for (i, vector) in all.iter().enumerate() {
                let var = match i.checked_sub(before).and_then(|i| own.get(i)) {
                    Some(own) => own.var,
                    None => graph.add_variable(Spec { shape: [vector.values.len()].into(), dtype: vector.dtype }),
                };
                arguments.push((name(vector.dtype), var));
            }
            before += own.len();
            graph.inputs.splice(within..within, arguments);
            SubGraph::new(graph)
        });
        let mut new = new.collect::<Vec<_>>().into_iter();
        // A program of a lazy device is not differentiated, so its rules are never traced and stay unchanged.
        let mut op = op.clone().with_sub_graphs(|graph| new.next().unwrap_or_else(|| graph.clone()));
        if let HigherOrder::While(WhileLoop { consts, .. }) | HigherOrder::Scan(ScanLoop { consts, .. }) = &mut op {
            *consts += count;
        }
        (op, inputs)
    }
}

/// Returns the lifted scalars of a sub-graph.
fn numbers_of(graph: &SubGraph) -> &[Vector] {
    graph.without_numbers().map_or(&[], |without| &without.numbers)
}

/// Returns the name of an argument for scalars of a dtype.
fn name(dtype: DType) -> String {
    format!("numbers.{}", crate::words::dtype_name(dtype))
}

/// Returns true for operations whose scalar may vary between calls. The algorithm for powers depends on the exponent, so
/// exponents stay.
fn varies(op: Binary) -> bool {
    !matches!(op, Binary::Pow | Binary::IntegerPow)
}

/// Returns a scalar as f64 if the conversion is exact.
fn exact(number: ScalarIr) -> Option<f64> {
    match number {
        ScalarIr::Float(x) => Some(x),
        ScalarIr::Int(x) => Some(x as f64).filter(|y| *y as i64 == x),
        ScalarIr::UInt(x) => Some(x as f64).filter(|y| *y as u64 == x),
        ScalarIr::Bool(_) => None,
    }
}

/// Returns true for common constants, which are the same in every step.
fn is_common(value: f64) -> bool {
    [0.0, 1.0, -1.0].contains(&value) || !value.is_finite()
}

/// Returns true for dtypes whose scalars can be lifted.
fn is_number(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16 | DType::I64 | DType::I32)
}

fn data(values: Vec<f64>, dtype: DType) -> TensorData {
    let shape = [values.len()];
    let each = values.into_iter();
    match dtype {
        DType::F64 => TensorData::new(each.collect::<Vec<f64>>(), shape),
        DType::F16 => TensorData::new(each.map(f16::from_f64).collect(), shape),
        DType::BF16 => TensorData::new(each.map(bf16::from_f64).collect(), shape),
        DType::I64 => TensorData::new(each.map(|x| x as i64).collect(), shape),
        DType::I32 => TensorData::new(each.map(|x| x as i32).collect(), shape),
        _ => TensorData::new(each.map(|x| x as f32).collect(), shape),
    }
}

/// Replaces each random key by a placeholder. Returns the keys.
fn lift_keys(graph: &mut Graph) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    for key in graph.equations.iter().flat_map(|equation| keys_in(&equation.primitive)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        return keys;
    }
    let placeholder = |i: usize| Key::from_words([PLACEHOLDERS, i as u32]);
    // As for a call of a program with these keys.
    let inputs = keys.iter().map(|key| (String::new(), *key)).collect();
    let of_graph = Keys { inputs, ..Keys::default() };
    let placeholders: Vec<Key> = (0..keys.len()).map(placeholder).collect();
    let map = of_graph.with(&placeholders);
    for equation in &mut graph.equations {
        if let Some(primitive) = map.replaced(&equation.primitive, true) {
            equation.primitive = primitive;
        }
    }
    graph.keys.inputs = placeholders.into_iter().enumerate().map(|(i, key)| (format!("keys.{i}"), key)).collect();
    keys
}
