//! Random bodies of loops.

use burn::tensor::{DType, Shape, Slice, TensorData};
use burn_ir::ScalarIr;
use grove_backend::ops::Spec;

use crate::{
    Equation, Graph, Primitive, Var,
    graph::Keys,
    primitive::{Binary, Reduction, Unary},
    sub_graph::{HigherOrder, ScanLoop, SubGraph, WhileLoop},
    types::Types,
};

pub(super) const F32: DType = DType::F32;
pub(super) const F64: DType = DType::F64;
pub(super) const I32: DType = DType::I32;
pub(super) const I64: DType = DType::I64;
pub(super) const BOOL: DType = DType::Bool(burn::tensor::BoolStore::Native);

pub(super) fn spec(dtype: DType, shape: &[usize]) -> Spec {
    Spec { shape: Shape::from(shape.to_vec()), dtype }
}

/// Random number generator for tests: a linear congruential generator with Knuth's constants.
pub(super) struct Random(pub u64);

impl Random {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub fn one_of<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    pub fn data(&mut self, spec: &Spec) -> TensorData {
        let count = spec.shape.num_elements();
        let floats: Vec<f64> = (0..count)
            .map(|_| match self.below(14) {
                0 => f64::NAN,
                1 => f64::INFINITY,
                2 => -0.0,
                3 => 1e30,
                _ => self.below(8001) as f64 / 1000.0 - 4.0,
            })
            .collect();
        let ints: Vec<i64> = (0..count)
            .map(|_| match self.below(9) {
                0 => i64::MAX,
                1 => i64::from(i32::MIN),
                _ => self.below(21) as i64 - 10,
            })
            .collect();
        let shape = spec.shape.clone();
        match spec.dtype {
            DType::F32 => TensorData::new(floats.into_iter().map(|x| x as f32).collect(), shape),
            DType::F64 => TensorData::new(floats, shape),
            DType::I32 => TensorData::new(ints.into_iter().map(|x| x as i32).collect(), shape),
            DType::I64 => TensorData::new(ints, shape),
            _ => TensorData::new(ints.into_iter().map(|x| x % 2 == 0).collect(), shape),
        }
    }
}

/// A graph under construction.
pub(super) struct Builder {
    graph: Graph,
}

impl Builder {
    pub fn new(inputs: &[Spec]) -> Self {
        let types = Types {
            float: burn::tensor::FloatDType::F32,
            int: burn::tensor::IntDType::I32,
            boolean: burn::tensor::BoolDType::Native,
        };
        let graph = Graph {
            variables: Vec::new(),
            inputs: Vec::new(),
            constants: Vec::new(),
            equations: Vec::new(),
            outputs: Vec::new(),
            keys: Keys::default(),
            types,
        };
        let mut builder = Self { graph };
        for spec in inputs {
            let var = builder.variable(spec.clone());
            builder.graph.inputs.push((String::new(), var));
        }
        builder
    }

    fn variable(&mut self, spec: Spec) -> Var {
        self.graph.variables.push(spec);
        Var(self.graph.variables.len() as u32 - 1)
    }

    pub fn input(&self, i: usize) -> Var {
        self.graph.inputs[i].1
    }

    pub fn spec(&self, var: Var) -> Spec {
        self.graph.variables[var.index()].clone()
    }

    fn constant(&mut self, data: TensorData) -> Var {
        let var = self.variable(Spec { shape: data.shape.clone(), dtype: data.dtype });
        self.graph.constants.push((var, data));
        var
    }

    fn equation(&mut self, primitive: Primitive, inputs: &[Var], outputs: &[Spec]) -> Vec<Var> {
        let outputs: Vec<Var> = outputs.iter().map(|spec| self.variable(spec.clone())).collect();
        self.graph.equations.push(Equation {
            primitive,
            inputs: inputs.iter().copied().map(Some).collect(),
            outputs: outputs.iter().copied().map(Some).collect(),
        });
        outputs
    }

    pub fn one(&mut self, primitive: Primitive, inputs: &[Var], output: Spec) -> Var {
        self.equation(primitive, inputs, &[output])[0]
    }

    pub fn build(mut self, outputs: &[Var]) -> Graph {
        self.graph.outputs = outputs.iter().map(|var| (String::new(), *var)).collect();
        self.graph
    }

    /// Picks a variable with a suitable type. Later variables are more likely.
    fn pick(&self, random: &mut Random, fits: impl Fn(&Spec) -> bool) -> Option<Var> {
        let fitting = |i: &usize| {
            let var = Var(*i as u32);
            let made = self.graph.inputs.iter().map(|(_, var)| *var);
            let made = made.chain(self.graph.constants.iter().map(|(var, _)| *var));
            let mut made = made.chain(self.graph.equations.iter().flat_map(|e| e.outputs.iter().flatten().copied()));
            fits(&self.graph.variables[*i]) && made.any(|other| other == var)
        };
        let all: Vec<usize> = (0..self.graph.variables.len()).filter(fitting).collect();
        (!all.is_empty()).then(|| Var(all[random.below(all.len()).max(random.below(all.len()))] as u32))
    }

    /// Adds a random equation if there are operands for it.
    fn random_equation(&mut self, random: &mut Random, depth: usize) -> Option<()> {
        let is_float = |spec: &Spec| spec.dtype.is_float();
        let is_int = |spec: &Spec| !spec.dtype.is_float() && !spec.dtype.is_bool();
        let is_bool = |spec: &Spec| spec.dtype.is_bool();
        let any = |_: &Spec| true;
        let float = |x: f64| ScalarIr::Float(x);
        let number = |random: &mut Random, spec: &Spec| match is_int(spec) {
            true => ScalarIr::Int(random.below(7) as i64 - 3),
            false => float(random.one_of(&[0.5, -1.25, 3.0, 0.1, 1e-3])),
        };
        match random.below(24) {
            0..4 => {
                let x = self.pick(random, is_float)?;
                let op = random.one_of(&UNARY);
                self.one(Primitive::Unary(op), &[x], self.spec(x));
            }
            4 => {
                let x = self.pick(random, is_float)?;
                let op = random.one_of(&[Unary::IsNan, Unary::IsInf]);
                self.one(Primitive::Unary(op), &[x], Spec { dtype: BOOL, ..self.spec(x) });
            }
            5 => {
                let x = self.pick(random, |spec| !is_float(spec))?;
                let op = if is_int(&self.spec(x)) { random.one_of(&[Unary::Abs, Unary::Not]) } else { Unary::Not };
                self.one(Primitive::Unary(op), &[x], self.spec(x));
            }
            6..10 => {
                let a = self.pick(random, any)?;
                let spec = self.spec(a);
                // The same shape, or a single element.
                let b = self.pick(random, |other| {
                    other.dtype == spec.dtype
                        && (other.shape == spec.shape
                            || other.shape.num_dims() == spec.shape.num_dims() && other.shape.num_elements() == 1)
                })?;
                let op = match spec.dtype {
                    DType::Bool(_) => random.one_of(&[Binary::And, Binary::Or]),
                    dtype if dtype.is_float() => random.one_of(&FLOAT),
                    _ => random.one_of(&INT),
                };
                let operands = if random.below(2) == 0 { [a, b] } else { [b, a] };
                self.one(Primitive::Binary(op), &operands, spec);
            }
            10 => {
                let a = self.pick(random, any)?;
                let spec = self.spec(a);
                let b = self.pick(random, |other| *other == spec)?;
                let op = if is_bool(&spec) { Binary::Eq } else { random.one_of(&COMPARISONS) };
                self.one(Primitive::Binary(op), &[a, b], Spec { dtype: BOOL, ..spec });
            }
            11 => {
                let x = self.pick(random, |spec| !is_bool(spec))?;
                let (spec, op) = (self.spec(x), random.one_of(&COMPARISONS));
                let number = number(random, &spec);
                self.one(Primitive::BinaryScalar(op, number), &[x], Spec { dtype: BOOL, ..spec });
            }
            12 | 13 => {
                let x = self.pick(random, |spec| !is_bool(spec))?;
                let spec = self.spec(x);
                let (op, number) = match (is_int(&spec), random.below(4)) {
                    (true, 0) => (Binary::IntegerPow, ScalarIr::Int(random.below(4) as i64)),
                    (true, 1) => (random.one_of(&[Binary::Div, Binary::Rem]), ScalarIr::Int(3)),
                    (true, _) => (random.one_of(&INT), ScalarIr::Int(random.below(9) as i64)),
                    (false, 0) => (Binary::IntegerPow, ScalarIr::Int(random.below(7) as i64 - 3)),
                    (false, 1) => (Binary::Pow, float(random.one_of(&[0.0, 0.5, 1.0, 2.0, -1.0, -2.0, 1.7]))),
                    (false, _) => {
                        let ops = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Rem];
                        (random.one_of(&ops), number(random, &spec))
                    }
                };
                self.one(Primitive::BinaryScalar(op, number), &[x], spec);
            }
            14 => {
                let x = self.pick(random, |spec| !is_bool(spec))?;
                let spec = self.spec(x);
                let (min, max) =
                    if is_int(&spec) { (ScalarIr::Int(-2), ScalarIr::Int(5)) } else { (float(-1.5), float(0.1)) };
                self.one(Primitive::Clamp(min, max), &[x], spec);
            }
            15 => {
                let x = self.pick(random, any)?;
                let spec = self.spec(x);
                let y = self.pick(random, |other| *other == spec)?;
                let mask = self.pick(random, |other| other.shape == spec.shape && is_bool(other))?;
                self.one(Primitive::Where, &[x, mask, y], spec);
            }
            16 => {
                let x = self.pick(random, any)?;
                let spec = self.spec(x);
                let mask = self.pick(random, |other| other.shape == spec.shape && is_bool(other))?;
                let value = if is_bool(&spec) { ScalarIr::Bool(true) } else { number(random, &spec) };
                self.one(Primitive::MaskFill(value), &[x, mask], spec);
            }
            17 | 18 => {
                let x = self.pick(random, any)?;
                let dtype = random.one_of(&[F32, F64, I32, I64]);
                self.one(Primitive::Convert(dtype), &[x], Spec { dtype, ..self.spec(x) });
            }
            19 => {
                let x = self.pick(random, |spec| spec.shape.num_dims() == 2)?;
                self.matrix(random, x);
            }
            20 => {
                let x = self.pick(random, |spec| spec.shape[..] == [3])?;
                let dtype = self.spec(x).dtype;
                let row = self.one(Primitive::Reshape(vec![1, 3]), &[x], spec(dtype, &[1, 3]));
                self.one(Primitive::BroadcastTo(vec![2, 3]), &[row], spec(dtype, &[2, 3]));
            }
            21 => {
                // Some reductions and selections run on tensors.
                let x = self.pick(random, |spec| !is_bool(spec) && spec.shape[..] == [2, 3])?;
                let dtype = self.spec(x).dtype;
                match random.below(6) {
                    0 => self.one(Primitive::Cumulative(Reduction::Sum, 1), &[x], self.spec(x)),
                    1 if dtype != F32 => {
                        self.one(Primitive::Reduce(Reduction::Sum, Some(0)), &[x], spec(dtype, &[1, 3]))
                    }
                    2 if dtype != F32 => {
                        self.one(Primitive::Reduce(Reduction::Sum, Some(1)), &[x], spec(dtype, &[2, 1]))
                    }
                    3 => {
                        let x = self.pick(random, |spec| !is_bool(spec) && spec.shape[..] == [3])?;
                        self.one(Primitive::Reduce(Reduction::Sum, None), &[x], spec(self.spec(x).dtype, &[1]))
                    }
                    4 => {
                        let i = self.pick(random, |spec| is_int(spec) && spec.shape[..] == [3])?;
                        let bounds = Primitive::Clamp(ScalarIr::Int(0), ScalarIr::Int(2));
                        let i = self.one(bounds, &[i], self.spec(i));
                        self.one(Primitive::Take(1), &[x, i], spec(dtype, &[2, 3]))
                    }
                    _ => {
                        let rows = self.constant(TensorData::new(vec![1_i64, 0, 1], [3]));
                        self.one(Primitive::Take(0), &[x, rows], spec(dtype, &[3, 3]))
                    }
                };
            }
            22 => {
                let shape = random.one_of(&[vec![3], vec![2, 3], vec![1]]);
                let dtype = random.one_of(&[F32, F64, I32, I64]);
                let value = number(random, &spec(dtype, &shape));
                self.one(Primitive::Full(shape.clone(), dtype, value), &[], spec(dtype, &shape));
            }
            _ if depth > 0 => self.random_nested(random, depth - 1)?,
            _ => {}
        }
        Some(())
    }

    fn matrix(&mut self, random: &mut Random, x: Var) {
        let Spec { shape, dtype } = self.spec(x);
        let (rows, columns) = (shape[0], shape[1]);
        match random.below(8) {
            0 => self.one(Primitive::SwapAxes(0, 1), &[x], spec(dtype, &[columns, rows])),
            1 => self.one(Primitive::Flip(vec![0, 1]), &[x], spec(dtype, &[rows, columns])),
            2 => self.one(Primitive::Repeat(1, 2), &[x], spec(dtype, &[rows, 2 * columns])),
            3 => {
                let ranges = vec![Slice::full(), Slice::new(0, None, 2)];
                self.one(Primitive::Slice(ranges), &[x], spec(dtype, &[rows, columns.div_ceil(2)]))
            }
            4 => {
                let row = self.one(Primitive::Slice(vec![(0..1).into()]), &[x], spec(dtype, &[1, columns]));
                self.one(Primitive::Concatenate(0), &[x, row], spec(dtype, &[rows + 1, columns]))
            }
            5 => self.one(Primitive::Concatenate(1), &[x, x], spec(dtype, &[rows, 2 * columns])),
            6 => {
                let column = [Slice::full(), (0..1).into()].to_vec();
                let part = self.one(Primitive::Slice(column), &[x], spec(dtype, &[rows, 1]));
                let last = [Slice::full(), (columns - 1..columns).into()].to_vec();
                self.one(Primitive::UpdateSlice(last), &[x, part], spec(dtype, &[rows, columns]))
            }
            _ => {
                let size = columns.min(2);
                self.one(Primitive::Unfold(1, size, 1), &[x], spec(dtype, &[rows, columns - size + 1, size]))
            }
        };
    }

    /// Adds a loop or a conditional with random bodies.
    fn random_nested(&mut self, random: &mut Random, depth: usize) -> Option<()> {
        let carries: Vec<Var> = (0..1 + random.below(3)).filter_map(|_| self.pick(random, |_| true)).collect();
        let consts: Vec<Var> = (0..random.below(3)).filter_map(|_| self.pick(random, |_| true)).collect();
        let specs = |builder: &Self, vars: &[Var]| vars.iter().map(|var| builder.spec(*var)).collect::<Vec<_>>();
        let (of_carry, of_consts) = (specs(self, &carries), specs(self, &consts));
        let size = 2 + random.below(5);
        match random.below(3) {
            0 => {
                let index = self.pick(random, |spec| spec.shape[..] == [1] && !spec.dtype.is_float())?;
                let branches = if self.spec(index).dtype.is_bool() { 2 } else { 3 };
                let specs = [&of_carry[..], &of_consts].concat();
                let branch = |random: &mut Random| SubGraph::new(random_graph(random, &specs, &of_carry, size, depth));
                let branches = (0..branches).map(|_| branch(random)).collect();
                let op = HigherOrder::Cond { branches };
                self.equation(Primitive::HigherOrder(op), &[vec![index], carries, consts].concat(), &of_carry);
            }
            1 => {
                let xs = self.pick(random, |spec| spec.shape.num_dims() == 2);
                let length = xs.map_or(3, |xs| self.spec(xs).shape[0]);
                let of_row: Vec<Spec> = xs
                    .iter()
                    .map(|xs| Spec { shape: self.spec(*xs).shape[1..].to_vec().into(), dtype: self.spec(*xs).dtype })
                    .collect();
                let op = random_scan(random, [&of_consts, &of_carry, &of_row], length, size, depth);
                let outputs = op.output_specs();
                self.equation(
                    Primitive::HigherOrder(op),
                    &[consts, carries, xs.into_iter().collect()].concat(),
                    &outputs,
                );
            }
            _ => {
                let (op, counter) = random_while(random, [&of_consts, &of_carry], size, depth);
                let zero = self.constant(TensorData::new(vec![0_i64], [1]));
                let outputs = [&[counter], &of_carry[..]].concat();
                self.equation(Primitive::HigherOrder(op), &[consts, vec![zero], carries].concat(), &outputs);
            }
        }
        Some(())
    }
}

const UNARY: [Unary; 25] = [
    Unary::Abs,
    Unary::Exp,
    Unary::Log,
    Unary::Log1p,
    Unary::Sqrt,
    Unary::Recip,
    Unary::Erf,
    Unary::Sin,
    Unary::Cos,
    Unary::Tan,
    Unary::Sinh,
    Unary::Cosh,
    Unary::Tanh,
    Unary::Asin,
    Unary::Acos,
    Unary::Atan,
    Unary::Asinh,
    Unary::Acosh,
    Unary::Atanh,
    Unary::Sigmoid,
    Unary::Round,
    Unary::Floor,
    Unary::Ceil,
    Unary::Trunc,
    Unary::Tanh,
];
const FLOAT: [Binary; 7] =
    [Binary::Add, Binary::Sub, Binary::Mul, Binary::Div, Binary::Rem, Binary::Pow, Binary::Atan2];
const INT: [Binary; 8] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::And,
    Binary::Or,
    Binary::Xor,
    Binary::ShiftLeft,
    Binary::ShiftRight,
];
const COMPARISONS: [Binary; 5] = [Binary::Eq, Binary::Gt, Binary::Ge, Binary::Lt, Binary::Le];

/// Creates a graph of `size` random equations with results of the given types.
fn random_graph(random: &mut Random, inputs: &[Spec], outputs: &[Spec], size: usize, depth: usize) -> Graph {
    let mut builder = Builder::new(inputs);
    let mut made = 0;
    while made < size {
        made += usize::from(builder.random_equation(random, depth).is_some());
    }
    let output = |spec: &Spec| match builder.pick(random, |other| other == spec) {
        Some(var) => var,
        None => unreachable!("each result has the shape and type of an argument"),
    };
    let outputs: Vec<Var> = outputs.iter().map(output).collect();
    builder.build(&outputs)
}

pub(super) fn random_scan(
    random: &mut Random,
    [consts, carry, rows]: [&[Spec]; 3],
    length: usize,
    size: usize,
    depth: usize,
) -> HigherOrder {
    let inputs = [consts, carry, rows].concat();
    let ys: Vec<Spec> = (0..random.below(3)).map(|_| random.one_of(&inputs)).collect();
    let body = random_graph(random, &inputs, &[carry, &ys].concat(), size, depth);
    let reverse = random.below(2) == 0;
    HigherOrder::Scan(ScanLoop {
        body: SubGraph::new(body),
        length,
        reverse,
        consts: consts.len(),
        carries: carry.len(),
    })
}

/// Creates a `while` loop of a few steps. Returns the loop and the type of its counter, which comes first in the carry.
pub(super) fn random_while(
    random: &mut Random,
    [consts, carry]: [&[Spec]; 2],
    size: usize,
    depth: usize,
) -> (HigherOrder, Spec) {
    let counter = spec(I64, &[1]);
    let inputs = [consts, std::slice::from_ref(&counter), carry].concat();
    let mut cond = Builder::new(&inputs);
    let i = cond.input(consts.len());
    let steps = random.below(4) as i64;
    let holds = cond.one(Primitive::BinaryScalar(Binary::Lt, ScalarIr::Int(steps)), &[i], spec(BOOL, &[1]));
    let cond = cond.build(&[holds]);
    let mut body = random_graph(random, &inputs, &[std::slice::from_ref(&counter), carry].concat(), size, depth);
    // Replace the first result by the incremented counter.
    body.variables.push(counter.clone());
    let next = Var(body.variables.len() as u32 - 1);
    body.equations.push(Equation {
        primitive: Primitive::BinaryScalar(Binary::Add, ScalarIr::Int(1)),
        inputs: vec![Some(body.inputs[consts.len()].1)],
        outputs: vec![Some(next)],
    });
    body.outputs[0].1 = next;
    (
        HigherOrder::While(WhileLoop { cond: SubGraph::new(cond), body: SubGraph::new(body), consts: consts.len() }),
        counter,
    )
}
