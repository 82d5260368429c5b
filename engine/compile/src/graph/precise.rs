//! Replacements for compositions of Burn 0.21 that lose precision or NaN.

use burn::tensor::DType;
use burn_ir::ScalarIr;
use std::collections::HashMap;

use super::{Equation, Graph, Var, sigmoid};
use crate::{
    Primitive,
    primitive::{Binary, Unary},
};

/// Equations with one output, by output.
type Producers = HashMap<Var, Equation>;

impl Graph {
    /// Rewrites the graph of a trace:
    /// - sigmoids of f64, which Burn computes in f32, are computed in f64;
    /// - `1 / (x x)` becomes `x^-2`, whose derivative is correct at 0 and at infinity;
    /// - the sign of NaN, for which Burn returns 0, becomes NaN.
    pub(crate) fn with_precise_compositions(mut self) -> Self {
        let mut producers = Producers::new();
        let mut retained = Vec::with_capacity(self.equations.len());
        for mut equation in std::mem::take(&mut self.equations) {
            let [Some(output)] = equation.outputs[..] else {
                retained.push(equation);
                continue;
            };
            if let Some((primitive, x)) = self.simpler(&equation, &producers) {
                (equation.primitive, equation.inputs) = (primitive, vec![Some(x)]);
            }
            producers.insert(output, equation.clone());
            let Some((x, mask)) = argument_of_sign(&equation, &producers) else {
                retained.push(equation);
                continue;
            };
            // The sign is stored in a new variable, and the output is NaN where the argument is NaN.
            let sign = self.add(output);
            let is_nan = self.add(mask);
            retained.push(Equation { outputs: vec![Some(sign)], ..equation });
            retained.push(Equation {
                primitive: Primitive::Unary(Unary::IsNan),
                inputs: vec![Some(x)],
                outputs: vec![Some(is_nan)],
            });
            retained.push(Equation {
                primitive: Primitive::MaskFill(ScalarIr::Float(f64::NAN)),
                inputs: vec![Some(sign), Some(is_nan)],
                outputs: vec![Some(output)],
            });
        }
        self.equations = retained;
        self
    }

    /// Adds a variable with the type of another one.
    fn add(&mut self, like: Var) -> Var {
        self.add_variable(self.variables[like.index()].clone())
    }

    /// Returns an operation of one variable that replaces an equation.
    fn simpler(&self, equation: &Equation, producers: &Producers) -> Option<(Primitive, Var)> {
        let [Some(x)] = equation.inputs[..] else { return None };
        let producer = producers.get(&x)?;
        match equation.primitive {
            Primitive::Unary(Unary::Recip) => match (&producer.primitive, &producer.inputs[..]) {
                (Primitive::Binary(Binary::Mul), [Some(a), Some(b)]) if a == b => {
                    Some((Primitive::BinaryScalar(Binary::IntegerPow, ScalarIr::Int(-2)), *a))
                }
                _ => None,
            },
            Primitive::Convert(DType::F64) => {
                let narrow = producers.get(&sigmoid::argument(producer, |var| producers.get(&var))?)?;
                let [Some(wide)] = narrow.inputs[..] else { return None };
                let is_f64 = self.variables[wide.index()].dtype == DType::F64;
                let is_narrowed = narrow.primitive == Primitive::Convert(DType::F32) && is_f64;
                is_narrowed.then_some((Primitive::Unary(Unary::Sigmoid), wide))
            }
            _ => None,
        }
    }
}

/// Returns the argument of a sign, which fills `-1` and then `1` into zeros, and one of its masks.
fn argument_of_sign(equation: &Equation, producers: &Producers) -> Option<(Var, Var)> {
    let filled = |equation: &Equation, value: f64, compare: Binary| {
        let [Some(x), Some(mask)] = equation.inputs[..] else { return None };
        let comparison = producers.get(&mask)?;
        let is_sign = equation.primitive == Primitive::MaskFill(ScalarIr::Float(value))
            && comparison.primitive == Primitive::BinaryScalar(compare, ScalarIr::Float(0.0));
        let [argument] = comparison.inputs[..] else { return None };
        is_sign.then_some((x, argument?, mask))
    };
    let (negative, x, mask) = filled(equation, 1.0, Binary::Gt)?;
    let (zeros, y, _) = filled(producers.get(&negative)?, -1.0, Binary::Lt)?;
    let is_zeros = matches!(producers.get(&zeros)?.primitive, Primitive::Full(_, _, ScalarIr::Float(0.0)));
    (x == y && is_zeros).then_some((x, mask))
}
