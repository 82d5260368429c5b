//! Numbers and random keys as arguments of a program, so that another learning rate, position or key needs no other program.

use burn::tensor::{DType, TensorData, bf16, f16};
use burn_ir::ScalarIr;
use grove_backend::ops::Spec;
use grove_tree::Key;

use crate::{
    Primitive,
    graph::{Equation, Graph, Keys, Var, keys_in},
    primitive::Binary,
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
    // For each type its vector and the numbers in it.
    let mut vectors: Vec<(DType, Var, Vec<f64>)> = Vec::new();
    let mut equations = Vec::with_capacity(graph.equations.len());
    for equation in std::mem::take(&mut graph.equations) {
        let number = match &equation.primitive {
            Primitive::BinaryScalar(op, number) if varies(*op) => Some(*number),
            Primitive::Full(_, _, number) => Some(*number),
            _ => None,
        };
        let output = equation.outputs.first().copied().flatten();
        let (Some(value), Some(output)) = (number.and_then(exact), output) else {
            equations.push(equation);
            continue;
        };
        // A comparison's output is another type than its input.
        let like = equation.inputs.first().copied().flatten().unwrap_or(output);
        let Spec { shape, dtype } = graph.variables[like.index()].clone();
        if !is_number(dtype) || matches!(equation.primitive, Primitive::Full(..)) && is_common(value) {
            equations.push(equation);
            continue;
        }
        let known = vectors.iter().position(|(of, ..)| *of == dtype).unwrap_or_else(|| {
            graph.variables.push(Spec { shape: [0].into(), dtype });
            vectors.push((dtype, Var(graph.variables.len() as u32 - 1), Vec::new()));
            vectors.len() - 1
        });
        let (_, vector, numbers) = &mut vectors[known];
        let (vector, at) = (*vector, numbers.len());
        numbers.push(value);
        let mut add = |shape: Vec<usize>| {
            graph.variables.push(Spec { shape: shape.into(), dtype });
            Var(graph.variables.len() as u32 - 1)
        };
        let one = |primitive: Primitive, input: Var, output: Var| Equation {
            primitive,
            inputs: vec![Some(input)],
            outputs: vec![Some(output)],
        };
        let (part, number) = (add(vec![1]), add(vec![1; shape.num_dims()]));
        equations.push(one(Primitive::Slice(vec![(at..at + 1).into()]), vector, part));
        equations.push(one(Primitive::Reshape(vec![1; shape.num_dims()]), part, number));
        equations.push(match equation.primitive {
            Primitive::BinaryScalar(op, _) => {
                Equation { primitive: Primitive::Binary(op), inputs: vec![Some(like), Some(number)], ..equation }
            }
            _ => one(Primitive::BroadcastTo(shape.to_vec()), number, output),
        });
    }
    graph.equations = equations;
    let keys = lift_keys(&mut graph);
    let mut numbers = Vec::with_capacity(vectors.len());
    for (dtype, var, values) in vectors {
        graph.variables[var.index()].shape = [values.len()].into();
        graph.inputs.push((format!("numbers.{}", crate::graph::dtype_name(dtype)), var));
        numbers.push(data(values, dtype));
    }
    Lifted { graph, numbers, keys }
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

/// True for what arrays are filled with in every step alike.
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
