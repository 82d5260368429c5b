//! Numbers and random keys as arguments of a program, so that another learning rate, position or key needs no other program.

use burn::tensor::{DType, TensorData, bf16, f16};
use burn_ir::ScalarIr;
use grove_backend::ops::Spec;
use grove_tree::Key;

use crate::{
    Primitive,
    graph::{Equation, Graph, Keys, Var, keys_in},
    primitive::Binary,
    sub_graph::{HigherOrder, SubGraph},
};

/// First word of the keys that stand for arguments; any odd constant would do.
const PLACEHOLDERS: u32 = 0x7A3B_9E15;

/// A program without its numbers and keys, and these.
pub(super) struct Lifted {
    pub graph: Graph,
    /// The last arguments: numbers of each type.
    pub numbers: Vec<TensorData>,
    /// The random keys.
    pub keys: Vec<Key>,
}

/// A graph whose numbers and random keys are arguments.
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

/// A graph without its numbers, and these.
pub(crate) struct WithoutNumbers {
    graph: Graph,
    numbers: Vec<Vector>,
}

impl SubGraph {
    /// The graph with its numbers as arguments, if it has any; it is made once.
    fn without_numbers(&self) -> Option<&WithoutNumbers> {
        self.memo(|| WithoutNumbers::of(self)).as_ref()
    }
}

impl WithoutNumbers {
    /// Those of a sub-graph, in which numbers that most loops have stay; nothing if it has no others.
    pub(crate) fn of(graph: &Graph) -> Option<Self> {
        let mut graph = graph.clone();
        let numbers = lift_numbers(&mut graph, is_common);
        (!numbers.is_empty()).then_some(Self { graph, numbers })
    }
}

/// Numbers of one type that are an argument.
struct Vector {
    dtype: DType,
    var: Var,
    values: Vec<f64>,
}

/// The equations of a graph without numbers.
struct Lifting {
    variables: Vec<Spec>,
    equations: Vec<Equation>,
    vectors: Vec<Vector>,
    boolean: DType,
}

/// Takes the numbers out of a graph, but for some. The vectors that have them are no arguments yet.
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
        // The numbers, and which of them stay.
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
        // A comparison's output is another type than its input.
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

    /// A number in place of the elements that compare with it.
    fn bound(&mut self, op: Binary, x: Var, number: Var, output: Var) {
        let Spec { shape, dtype } = self.variables[x.index()].clone();
        let number = self.whole(number, &shape, dtype);
        let mask = self.variable(shape.to_vec(), self.boolean);
        self.push(Primitive::Binary(op), &[x, number], mask);
        self.push(Primitive::Where, &[x, mask, number], output);
    }

    /// A number as an array of a shape.
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

    /// Adds numbers to the vector of their type. Returns a part of it.
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

    /// A number as an array of one element.
    fn number(&mut self, value: f64, dtype: DType, rank: usize) -> Var {
        let (part, number) = (self.numbers(&[value], dtype), self.variable(vec![1; rank], dtype));
        self.push(Primitive::Reshape(vec![1; rank]), &[part], number);
        number
    }

    /// An operation whose sub-graphs have their numbers as arguments, and its inputs with these.
    fn higher_order(&mut self, op: &HigherOrder, mut inputs: Vec<Option<Var>>) -> (HigherOrder, Vec<Option<Var>>) {
        let graphs: Vec<&SubGraph> = op.sub_graphs().into_iter().map(|(_, graph)| graph).collect();
        if graphs.iter().all(|graph| graph.without_numbers().is_none()) {
            return (op.clone(), inputs);
        }
        // The position of new arguments among the inputs, and in the sub-graphs.
        let (at, within) = match op {
            HigherOrder::While { consts, .. } | HigherOrder::Scan { consts, .. } => (*consts, *consts),
            HigherOrder::Cond { .. } => (inputs.len(), inputs.len() - 1),
            HigherOrder::CustomJvp { .. } | HigherOrder::CustomVjp { .. } => (inputs.len(), inputs.len()),
        };
        let all: Vec<&Vector> = graphs.iter().flat_map(|graph| numbers_of(graph)).collect();
        let added: Vec<_> = all.iter().map(|vector| Some(self.numbers(&vector.values, vector.dtype))).collect();
        let count = added.len();
        inputs.splice(at..at, added);
        // Each sub-graph takes the numbers of all.
        let mut before = 0;
        let new = graphs.iter().map(|sub_graph| {
            let own = numbers_of(sub_graph);
            let mut graph = sub_graph.without_numbers().map_or(&***sub_graph, |without| &without.graph).clone();
            let mut arguments = Vec::with_capacity(count);
            for (i, vector) in all.iter().enumerate() {
                let var = match i.checked_sub(before).and_then(|i| own.get(i)) {
                    Some(own) => own.var,
                    None => {
                        graph.variables.push(Spec { shape: [vector.values.len()].into(), dtype: vector.dtype });
                        Var(graph.variables.len() as u32 - 1)
                    }
                };
                arguments.push((name(vector.dtype), var));
            }
            before += own.len();
            graph.inputs.splice(within..within, arguments);
            SubGraph::new(graph)
        });
        let mut new = new.collect::<Vec<_>>().into_iter();
        let mut next = |graph: &SubGraph| new.next().unwrap_or_else(|| graph.clone());
        let op = match op.clone() {
            HigherOrder::Cond { branches } => HigherOrder::Cond { branches: branches.iter().map(next).collect() },
            HigherOrder::While { cond, body, consts } => {
                HigherOrder::While { cond: next(&cond), body: next(&body), consts: consts + count }
            }
            HigherOrder::Scan { body, length, reverse, consts, carries } => {
                HigherOrder::Scan { body: next(&body), length, reverse, consts: consts + count, carries }
            }
            // A program of a lazy device is not differentiated: its rules are never traced.
            HigherOrder::CustomJvp { name, function, jvp } => {
                HigherOrder::CustomJvp { name, function: next(&function), jvp }
            }
            HigherOrder::CustomVjp { name, function, forward, backward } => {
                HigherOrder::CustomVjp { name, function: next(&function), forward, backward }
            }
        };
        (op, inputs)
    }
}

/// The numbers of a sub-graph that do not stay.
fn numbers_of(graph: &SubGraph) -> &[Vector] {
    graph.without_numbers().map_or(&[], |without| &without.numbers)
}

/// The name of an argument that is numbers.
fn name(dtype: DType) -> String {
    format!("numbers.{}", crate::words::dtype_name(dtype))
}

/// True for operations whose number may be another one each time. Powers are computed by what the number is.
fn varies(op: Binary) -> bool {
    !matches!(op, Binary::Pow | Binary::IntegerPow)
}

/// A number as f64, where that is all of it.
fn exact(number: ScalarIr) -> Option<f64> {
    match number {
        ScalarIr::Float(x) => Some(x),
        ScalarIr::Int(x) => Some(x as f64).filter(|y| *y as i64 == x),
        ScalarIr::UInt(x) => Some(x as f64).filter(|y| *y as u64 == x),
        ScalarIr::Bool(_) => None,
    }
}

/// True for numbers that are the same in every step.
fn is_common(value: f64) -> bool {
    [0.0, 1.0, -1.0].contains(&value) || !value.is_finite()
}

/// True for types that have vectors of numbers.
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

/// Puts a placeholder in place of each random key. Returns the keys.
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
    // As in a call of a program of these keys.
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
