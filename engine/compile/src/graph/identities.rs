//! Algebraic simplifications that preserve every bit.

use burn::tensor::{DType, Slice};
use burn_ir::ScalarIr;
use std::collections::HashMap;

use super::{Equation, Graph, Var};
use crate::{
    Primitive,
    primitive::{Binary, Unary},
};

/// Result of a simplification.
enum Simpler {
    /// The output of the equation equals an existing variable.
    Same(Var),
    /// The output of the equation is another operation of one variable.
    Of(Box<Primitive>, Var),
}

/// The equations processed so far.
struct Known<'a> {
    graph: &'a Graph,
    /// Equations with one output, by output.
    producers: HashMap<Var, Equation>,
    /// Arrays filled with one number.
    numbers: HashMap<Var, ScalarIr>,
}

impl Graph {
    /// Returns the graph without operations that have no effect: `x * 1`, `x / 1`, `x - 0`, `-(-x)`, a transpose of a
    /// transpose, a reshape to the same shape and the like. Consecutive movements are merged into one.
    ///
    /// Results keep their bits, including the signs of zeros. Only the bits of a NaN may differ, because arithmetic may change
    /// them and a copy keeps them. `x + 0` is kept, because it turns -0 into 0. On candle, `x * 1` turns -0 into 0 too; the
    /// simplified graph keeps -0.
    ///
    /// A backend may sum the elements of an array that is reversed, transposed or broadcast without a copy in a different order
    /// than the elements of a copy. Therefore an operation that makes such a copy for a reduction or a product is kept.
    /// Arguments are assumed to be in row-major order.
    pub fn simplified(self) -> Self {
        let count = self.equations.len();
        let simpler = self.simplified_once();
        // An equation that needed a copy may have been removed.
        if simpler.equations.len() < count { simpler.simplified() } else { simpler }
    }

    fn simplified_once(mut self) -> Self {
        let equations = std::mem::take(&mut self.equations);
        let by_element = self.used_by_element(&equations);
        let mut retained = Vec::with_capacity(equations.len());
        let mut replaced: HashMap<Var, Var> = HashMap::new();
        let mut known = Known { graph: &self, producers: HashMap::new(), numbers: HashMap::new() };
        for mut equation in equations {
            for var in equation.inputs.iter_mut().flatten() {
                *var = replaced.get(var).copied().unwrap_or(*var);
            }
            let [Some(output)] = equation.outputs[..] else {
                retained.push(equation);
                continue;
            };
            let same = loop {
                match known.simpler(&equation, output) {
                    Some(Simpler::Same(var)) => {
                        let copied = known.is_view(var) && !is_view(&equation.primitive);
                        break (!copied || by_element[output.index()]).then_some(var);
                    }
                    Some(Simpler::Of(primitive, var)) => {
                        equation = Equation { primitive: *primitive, inputs: vec![Some(var)], ..equation };
                    }
                    None => break None,
                }
            };
            match same {
                Some(var) => drop(replaced.insert(output, var)),
                None => {
                    known.learn(&equation, output);
                    retained.push(equation);
                }
            }
        }
        self.equations = retained;
        for (_, var) in &mut self.outputs {
            *var = replaced.get(var).copied().unwrap_or(*var);
        }
        self.without_dead_code()
    }

    /// Returns true for each variable that only element-wise operations use, whose results do not depend on the memory layout.
    fn used_by_element(&self, equations: &[Equation]) -> Vec<bool> {
        let mut by_element = vec![true; self.variables.len()];
        for equation in equations.iter().filter(|equation| !is_by_element(&equation.primitive)) {
            equation.inputs.iter().flatten().for_each(|var| by_element[var.index()] = false);
        }
        by_element
    }
}

impl Known<'_> {
    /// Returns true if a backend may represent the array as a view of the memory of its input.
    fn is_view(&self, var: Var) -> bool {
        self.producers.get(&var).is_some_and(|equation| is_view(&equation.primitive))
    }

    fn learn(&mut self, equation: &Equation, output: Var) {
        let number = match (&equation.primitive, &equation.inputs[..]) {
            (Primitive::Full(_, _, value), _) => Some(*value),
            // Moving or copying keeps all elements equal.
            (primitive, [Some(x)]) if is_movement(primitive) => self.numbers.get(x).copied(),
            _ => None,
        };
        self.numbers.extend(number.map(|number| (output, number)));
        self.producers.insert(output, equation.clone());
    }

    /// Returns the operation and the input of the equation that produces a variable, if the equation has one input.
    fn producer(&self, var: Var) -> Option<(&Primitive, Var)> {
        let equation = self.producers.get(&var)?;
        match equation.inputs[..] {
            [Some(x)] => Some((&equation.primitive, x)),
            _ => None,
        }
    }

    fn simpler(&self, equation: &Equation, output: Var) -> Option<Simpler> {
        let simpler = match equation.inputs[..] {
            [Some(x)] => self.of_one(&equation.primitive, x, output),
            [Some(a), Some(b)] => self.of_two(&equation.primitive, a, b, output).map(Simpler::Same),
            [Some(x), Some(_), Some(y)] if matches!(equation.primitive, Primitive::Where) && x == y => {
                Some(Simpler::Same(x))
            }
            _ => None,
        };
        // Not a simplification if it would drop a broadcast or a conversion.
        simpler.filter(|simpler| match simpler {
            Simpler::Same(var) => self.graph.variables[var.index()] == self.graph.variables[output.index()],
            Simpler::Of(..) => true,
        })
    }

    fn of_one(&self, primitive: &Primitive, x: Var, output: Var) -> Option<Simpler> {
        let (dtype, same_shape) = (self.graph.dtype(x), self.graph.shape(x) == self.graph.shape(output));
        let before = self.producer(x);
        let of = |primitive: Primitive, x: Var| Some(Simpler::Of(Box::new(primitive), x));
        match (primitive, before) {
            (Primitive::BinaryScalar(op, number), _) if keeps(*op, *number, dtype) => Some(Simpler::Same(x)),
            (Primitive::BinaryScalar(Binary::Mul, a), Some((Primitive::BinaryScalar(Binary::Mul, b), x)))
                if exact(dtype) && is(*a, -1.0) && is(*b, -1.0) =>
            {
                Some(Simpler::Same(x))
            }
            (Primitive::Unary(Unary::Not), Some((Primitive::Unary(Unary::Not), x))) => Some(Simpler::Same(x)),
            (
                Primitive::Unary(Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round),
                Some((before, _)),
            ) if before == primitive => Some(Simpler::Same(x)),
            // A repeated clamp has no effect.
            (Primitive::Clamp(..), Some((before, _))) if before == primitive => Some(Simpler::Same(x)),
            (Primitive::Reshape(_) | Primitive::BroadcastTo(_), _) if same_shape => Some(Simpler::Same(x)),
            (Primitive::Reshape(shape), Some((Primitive::Reshape(_), x))) => of(Primitive::Reshape(shape.clone()), x),
            (Primitive::BroadcastTo(shape), Some((Primitive::BroadcastTo(_), x))) => {
                of(Primitive::BroadcastTo(shape.clone()), x)
            }
            (Primitive::Convert(to), _) if *to == dtype => Some(Simpler::Same(x)),
            (Primitive::Convert(to), Some((Primitive::Convert(_), first))) => {
                let from = self.graph.dtype(first);
                let kinds = *to == from || matches!(from, DType::Bool(_)) || to.is_float() && from.is_float();
                let kinds = kinds || is_integer(*to) && is_integer(from);
                match lossless(from, dtype) && kinds {
                    true if *to == from => Some(Simpler::Same(first)),
                    true => of(Primitive::Convert(*to), first),
                    false => None,
                }
            }
            (Primitive::Slice(ranges), _) if same_shape && forward(ranges) => Some(Simpler::Same(x)),
            (Primitive::Flip(axes), _) if axes.is_empty() => Some(Simpler::Same(x)),
            (Primitive::Flip(axes), Some((Primitive::Flip(before), x))) if sorted(axes) == sorted(before) => {
                Some(Simpler::Same(x))
            }
            (Primitive::Repeat(_, 1), _) | (Primitive::Concatenate(_), _) => Some(Simpler::Same(x)),
            (Primitive::Transpose(_) | Primitive::SwapAxes(..), _) => self.transposed(primitive, x, before),
            _ => None,
        }
    }

    /// Simplifies a transpose that keeps all axes in place or follows another transpose.
    fn transposed(&self, primitive: &Primitive, x: Var, before: Option<(&Primitive, Var)>) -> Option<Simpler> {
        let rank = self.graph.shape(x).num_dims();
        let axes = order(primitive, rank)?;
        if axes.iter().copied().eq(0..rank) {
            return Some(Simpler::Same(x));
        }
        let (before, source) = before?;
        let first = order(before, rank)?;
        let both: Vec<usize> = axes.iter().map(|axis| first[*axis]).collect();
        Some(match both.iter().copied().eq(0..rank) {
            true => Simpler::Same(source),
            false => Simpler::Of(Box::new(Primitive::Transpose(both)), source),
        })
    }

    fn of_two(&self, primitive: &Primitive, a: Var, b: Var, output: Var) -> Option<Var> {
        let number = |var: Var| self.numbers.get(&var).copied();
        let dtype = self.graph.dtype(a);
        match primitive {
            Primitive::Binary(Binary::And | Binary::Or) if a == b => Some(a),
            Primitive::Binary(op) => {
                let right = number(b).is_some_and(|number| keeps(*op, number, dtype));
                let commutes = matches!(op, Binary::Add | Binary::Mul);
                let left = || commutes && number(a).is_some_and(|number| keeps(*op, number, dtype));
                match right && self.graph.shape(a) == self.graph.shape(output) {
                    true => Some(a),
                    false => left().then_some(b),
                }
            }
            Primitive::UpdateSlice(ranges) => {
                let whole = self.graph.shape(b) == self.graph.shape(output) && forward(ranges);
                whole.then_some(b)
            }
            _ => None,
        }
    }
}

/// Returns true for operations that move or copy elements of one input.
pub(super) fn is_movement(primitive: &Primitive) -> bool {
    matches!(
        primitive,
        Primitive::Reshape(_)
            | Primitive::SwapAxes(..)
            | Primitive::Transpose(_)
            | Primitive::Flip(_)
            | Primitive::BroadcastTo(_)
            | Primitive::Unfold(..)
            | Primitive::Slice(_)
            | Primitive::Repeat(..)
    )
}

/// Returns true for operations whose results may be views of the memory of their input, with other strides.
fn is_view(primitive: &Primitive) -> bool {
    is_movement(primitive) && !matches!(primitive, Primitive::Reshape(_) | Primitive::Repeat(..))
}

/// Returns true for element-wise operations.
fn is_by_element(primitive: &Primitive) -> bool {
    matches!(
        primitive,
        Primitive::Unary(_)
            | Primitive::Binary(_)
            | Primitive::BinaryScalar(..)
            | Primitive::Clamp(..)
            | Primitive::Where
            | Primitive::MaskFill(_)
            | Primitive::Convert(_)
    )
}

/// Returns the order of axes after a transpose.
fn order(primitive: &Primitive, rank: usize) -> Option<Vec<usize>> {
    match primitive {
        Primitive::Transpose(axes) if axes.len() == rank => Some(axes.clone()),
        Primitive::SwapAxes(a, b) if *a < rank && *b < rank => {
            let mut axes: Vec<usize> = (0..rank).collect();
            axes.swap(*a, *b);
            Some(axes)
        }
        _ => None,
    }
}

fn sorted(axes: &[usize]) -> Vec<usize> {
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    axes
}

/// Returns true if every range has step 1.
fn forward(ranges: &[Slice]) -> bool {
    ranges.iter().all(|range| range.step == 1)
}

fn is_integer(dtype: DType) -> bool {
    dtype.is_int() || dtype.is_uint()
}

/// Returns true for dtypes with exact arithmetic. Some backends compute `Flex32` with fewer bits.
fn exact(dtype: DType) -> bool {
    is_integer(dtype) || matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

/// Returns true if a number equals a value, including the sign of zero.
fn is(number: ScalarIr, value: f64) -> bool {
    match number {
        ScalarIr::Float(x) => x.to_bits() == value.to_bits(),
        ScalarIr::Int(x) => x as f64 == value && value.to_bits() == (value + 0.0).to_bits(),
        ScalarIr::UInt(x) => x as f64 == value && value.to_bits() == (value + 0.0).to_bits(),
        ScalarIr::Bool(_) => false,
    }
}

/// Returns true if `x op number` is `x` for every `x` of a dtype.
fn keeps(op: Binary, number: ScalarIr, dtype: DType) -> bool {
    let zero = || is(number, 0.0);
    exact(dtype)
        && match op {
            Binary::Mul | Binary::Div | Binary::Pow | Binary::IntegerPow => is(number, 1.0),
            Binary::Sub => zero(),
            // 0 + -0 is 0, and -0 + -0 is -0.
            Binary::Add => is(number, if dtype.is_float() { -0.0 } else { 0.0 }),
            Binary::Or | Binary::Xor | Binary::ShiftLeft | Binary::ShiftRight => is_integer(dtype) && zero(),
            Binary::Rem | Binary::Atan2 | Binary::And => false,
            Binary::Eq | Binary::Gt | Binary::Ge | Binary::Lt | Binary::Le => false,
        }
}

/// Returns true if a dtype represents every value of another dtype.
fn lossless(from: DType, to: DType) -> bool {
    use DType as D;
    // Number of significand bits of a floating-point dtype.
    let digits = |dtype| match dtype {
        D::F64 => 53,
        D::F32 => 24,
        D::F16 => 11,
        D::BF16 => 8,
        _ => 0,
    };
    let bits = |dtype: DType| dtype.size() * 8;
    match (from, to) {
        (D::Bool(_), to) => is_integer(to) || digits(to) > 0,
        (D::F32, D::F64) | (D::F16 | D::BF16, D::F32 | D::F64) => true,
        (from, to) if is_integer(from) && digits(to) > 0 => bits(from) <= digits(to),
        (from, to) if from.is_int() && to.is_int() || from.is_uint() && to.is_uint() => bits(from) <= bits(to),
        (from, to) if from.is_uint() && to.is_int() => bits(from) < bits(to),
        _ => false,
    }
}
