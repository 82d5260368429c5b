//! Recognition of sigmoids, which Burn composes as `exp(-log(1 + exp(-x)))`.

use burn_ir::ScalarIr;
use std::collections::HashMap;

use super::{Equation, Graph, Var};
use crate::{
    Primitive,
    primitive::{Binary, Unary},
};

impl Graph {
    /// Returns the graph with each composed sigmoid replaced by one operation. The derivative of the composition is NaN if
    /// `exp(-x)` is infinite.
    pub(super) fn with_sigmoids(mut self) -> Self {
        let mut producers: HashMap<Var, &Equation> = HashMap::new();
        let mut found = Vec::new();
        for (i, equation) in self.equations.iter().enumerate() {
            let [Some(output)] = equation.outputs[..] else { continue };
            producers.insert(output, equation);
            if let Some(x) = argument(equation, |var| producers.get(&var).copied()) {
                found.push((i, x));
            }
        }
        for (i, x) in found {
            let equation = &mut self.equations[i];
            (equation.primitive, equation.inputs) = (Primitive::Unary(Unary::Sigmoid), vec![Some(x)]);
        }
        self
    }
}

/// Returns `x` if an equation ends the composition of `sigmoid(x)`.
pub(super) fn argument<'a>(equation: &'a Equation, producer: impl Fn(Var) -> Option<&'a Equation>) -> Option<Var> {
    let composition = [
        Primitive::Unary(Unary::Exp),
        Primitive::BinaryScalar(Binary::Mul, ScalarIr::Float(-1.0)),
        Primitive::Unary(Unary::Log),
        Primitive::BinaryScalar(Binary::Add, ScalarIr::Float(1.0)),
        Primitive::Unary(Unary::Exp),
        Primitive::BinaryScalar(Binary::Mul, ScalarIr::Float(-1.0)),
    ];
    let mut next = Some(equation);
    let mut x = None;
    for primitive in composition {
        let equation = next.filter(|equation| equation.primitive == primitive)?;
        x = equation.inputs[0];
        next = producer(x?);
    }
    x
}
