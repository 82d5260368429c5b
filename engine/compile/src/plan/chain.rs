//! Planning of fused chains.

use burn::tensor::{DType, Shape};
use grove_backend::{
    Backend,
    ops::{
        Spec,
        chain::{Map, Pair, Step},
        loops::{self, Instruction},
    },
};

use super::planner::{Belongs, Id, Number, Planner};
use crate::{fused::Fused, primitive::Binary};

impl<B: Backend> Planner<'_, '_, B> {
    /// Plans a chain and returns its results; `None` if the chain is large.
    pub(super) fn chain(&mut self, fused: &Fused, inputs: &[Id]) -> Option<Vec<Id>> {
        let chain = &fused.chain;
        let whole = chain.len() <= super::MAX_ELEMENTS && (chain.sums().is_empty() || chain.sums_whole_rows());
        whole.then_some(())?;
        let spec = Spec { shape: Shape::from([chain.len()]), dtype: DType::F32 };
        let mut values = Vec::with_capacity(inputs.len() + chain.steps().len());
        for (id, access) in inputs.iter().zip(chain.inputs()) {
            let full = access.repeat == 1 && access.len == chain.len();
            values.push(match full {
                true => *id,
                false => {
                    let position = |i: usize| (i / access.repeat % access.len) as u32;
                    self.gathered(*id, (0..chain.len()).map(position).collect(), spec.clone())?
                }
            });
        }
        for step in chain.steps() {
            let id = self.step(*step, &values, &spec)?;
            values.push(id);
        }
        let (outputs, sums) = (chain.outputs().to_vec(), chain.sums().to_vec());
        let mut shapes = fused.shapes.iter().cloned();
        let mut ids = Vec::with_capacity(outputs.len() + sums.len());
        for output in outputs {
            let spec = Spec { shape: shapes.next()?, dtype: DType::F32 };
            ids.push(self.reshaped(values[output], spec)?);
        }
        for sum in sums {
            let spec = Spec { shape: shapes.next()?, dtype: DType::F32 };
            let sums = |[x]: [_; 1], y| Instruction::Sums(sum.divisor, x, y);
            ids.push(self.emit([values[sum.value]], spec, Belongs::Outermost, sums)?);
        }
        Some(ids)
    }

    fn step(&mut self, step: Step, values: &[Id], spec: &Spec) -> Option<Id> {
        match step {
            Step::Map(Map::Copy, x) => return Some(values[x]),
            Step::Map(map, x) => {
                if let Some(function) = plain(map) {
                    let unary = |[x]: [_; 1], y| Instruction::Unary(function, x, y);
                    return self.emit([values[x]], spec.clone(), Belongs::Outermost, unary);
                }
            }
            Step::Pair(pair, a, b) => {
                if let Some(op) = arithmetic(pair) {
                    return self.pair(op, DType::F32, values[a], values[b], spec);
                }
            }
            Step::Number(pair, x, number) => {
                if let Some(op) = arithmetic(pair) {
                    let number = self.number(Number::F32(number));
                    return self.pair(op, DType::F32, values[x], number, spec);
                }
            }
            _ => {}
        }
        let (step, [a, b, c]) = match step {
            Step::Map(map, x) => (Step::Map(map, 0), [x; 3]),
            Step::Pair(pair, a, b) => (Step::Pair(pair, 0, 1), [a, b, b]),
            Step::Number(pair, x, number) => (Step::Number(pair, 0, number), [x; 3]),
            Step::Power(x, exponent) => (Step::Power(0, exponent), [x; 3]),
            Step::Clamp(x, min, max) => (Step::Clamp(0, min, max), [x; 3]),
            Step::Select(mask, a, b) => (Step::Select(0, 1, 2), [mask, a, b]),
            Step::Fill(mask, x, number) => (Step::Fill(0, 1, number), [mask, x, x]),
        };
        let operands = [values[a], values[b], values[c]];
        self.emit(operands, spec.clone(), Belongs::Outermost, |operands, y| Instruction::Chain(step, operands, y))
    }
}

/// Returns the exact function for a map that a chain does not approximate.
fn plain(map: Map) -> Option<loops::Unary> {
    use loops::Unary;
    Some(match map {
        Map::Abs => Unary::Abs,
        Map::Log => Unary::Log,
        Map::Log1p => Unary::Log1p,
        Map::Sqrt => Unary::Sqrt,
        Map::Recip => Unary::Recip,
        Map::Sin => Unary::Sin,
        Map::Cos => Unary::Cos,
        Map::Floor => Unary::Floor,
        Map::Ceil => Unary::Ceil,
        Map::Trunc => Unary::Trunc,
        _ => return None,
    })
}

fn arithmetic(pair: Pair) -> Option<Binary> {
    Some(match pair {
        Pair::Add => Binary::Add,
        Pair::Sub => Binary::Sub,
        Pair::Mul => Binary::Mul,
        Pair::Div => Binary::Div,
        Pair::Pow => Binary::Pow,
        _ => return None,
    })
}
