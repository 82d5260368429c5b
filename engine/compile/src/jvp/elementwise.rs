//! Tangents of element-wise operations.

use burn_ir::ScalarIr;
use grove_backend::{AnyTensor, Backend};

use super::rules::{Rules, Tangent};
use crate::{
    Primitive,
    primitive::{Binary, Unary},
};

impl<B: Backend> Rules<'_, B> {
    pub(super) fn unary_tangent(&self, op: Unary, x: AnyTensor<B>, t: AnyTensor<B>, y: AnyTensor<B>) -> Tangent<B> {
        let sqrt = |x| self.unary(Unary::Sqrt, x);
        let plus_one = |x| self.scalar(Binary::Add, x, 1.0);
        Some(match op {
            Unary::Abs => self.mul(t, x.sign()),
            Unary::Exp => self.mul(t, y),
            Unary::Log => self.div(t, x),
            Unary::Log1p => self.div(t, plus_one(x)),
            Unary::Sqrt => self.div(t, self.scalar(Binary::Mul, y, 2.0)),
            Unary::Recip => self.scalar(Binary::Mul, self.mul(t, self.square(y)), -1.0),
            Unary::Erf => {
                let slope = self.unary(Unary::Exp, self.scalar(Binary::Mul, self.square(x), -1.0));
                self.scalar(Binary::Mul, self.mul(t, slope), std::f64::consts::FRAC_2_SQRT_PI)
            }
            Unary::Sin => self.mul(t, self.unary(Unary::Cos, x)),
            Unary::Cos => self.scalar(Binary::Mul, self.mul(t, self.unary(Unary::Sin, x)), -1.0),
            Unary::Tan => self.mul(t, plus_one(self.square(y))),
            Unary::Sinh => self.mul(t, self.unary(Unary::Cosh, x)),
            Unary::Cosh => self.mul(t, self.unary(Unary::Sinh, x)),
            Unary::Tanh => self.mul(t, self.one_minus(self.square(y))),
            Unary::Asin => self.div(t, sqrt(self.one_minus(self.square(x)))),
            Unary::Acos => self.scalar(Binary::Mul, self.div(t, sqrt(self.one_minus(self.square(x)))), -1.0),
            Unary::Atan => self.div(t, plus_one(self.square(x))),
            Unary::Asinh => self.div(t, sqrt(plus_one(self.square(x)))),
            Unary::Acosh => self.div(t, sqrt(self.scalar(Binary::Sub, self.square(x), 1.0))),
            Unary::Atanh => self.div(t, self.one_minus(self.square(x))),
            Unary::Sigmoid => self.mul(t, self.mul(y.clone(), self.one_minus(y))),
            // Step functions, and operations whose results are not floating-point.
            Unary::Round | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::IsNan | Unary::IsInf | Unary::Not => {
                return None;
            }
        })
    }

    pub(super) fn binary_tangent(
        &self,
        op: Binary,
        [a, b]: [&AnyTensor<B>; 2],
        [ta, tb]: [Tangent<B>; 2],
        y: &AnyTensor<B>,
    ) -> Tangent<B> {
        let negative = |x| self.scalar(Binary::Mul, x, -1.0);
        let times = |t: Tangent<B>, factor: &dyn Fn() -> AnyTensor<B>| t.map(|t| self.mul(t, factor()));
        match op {
            Binary::Add => {
                // One tangent may be smaller than the sum; the caller broadcasts it.
                self.sum(ta, tb)
            }
            Binary::Sub => match (ta, tb) {
                (Some(ta), Some(tb)) => Some(self.sub(ta, tb)),
                (ta, tb) => ta.or(tb.map(negative)),
            },
            Binary::Mul => self.sum(times(ta, &|| b.clone()), times(tb, &|| a.clone())),
            Binary::Div => {
                let of_a = ta.map(|ta| self.div(ta, b.clone()));
                let of_b = tb.map(|tb| negative(self.div(self.mul(tb, y.clone()), b.clone())));
                self.sum(of_a, of_b)
            }
            Binary::Rem => {
                let quotient = || negative(self.unary(Unary::Floor, self.div(a.clone(), b.clone())));
                self.sum(ta, times(tb, &quotient))
            }
            Binary::Pow => {
                let is_zero =
                    |x: &AnyTensor<B>| self.one(Primitive::BinaryScalar(Binary::Eq, ScalarIr::Float(0.0)), [x.clone()]);
                let fill = |x, mask, value| self.one(Primitive::MaskFill(ScalarIr::Float(value)), [x, mask]);
                let fitted = |x: &AnyTensor<B>| self.fitted(x.clone(), y);
                // If base and exponent are 0, the derivative is 0, as for the constant 1, instead of 0 times infinity.
                let of_base = || {
                    let constant = self.binary(Binary::And, is_zero(&fitted(a)), is_zero(&fitted(b)));
                    let lower = fill(fitted(&self.scalar(Binary::Sub, b.clone(), 1.0)), constant, 0.0);
                    self.mul(b.clone(), self.binary(Binary::Pow, a.clone(), lower))
                };
                // If the base is 0, the power does not depend on the exponent, and the logarithm is not finite.
                let of_exponent = || self.mul(y.clone(), self.unary(Unary::Log, fill(a.clone(), is_zero(a), 1.0)));
                self.sum(times(ta, &of_base), times(tb, &of_exponent))
            }
            Binary::IntegerPow => times(ta, &|| {
                let lower = self.one(Primitive::BinaryScalar(Binary::Sub, ScalarIr::Int(1)), [b.clone()]);
                let factor = self.one(Primitive::Convert(a.dtype()), [b.clone()]);
                self.mul(factor, self.binary(Binary::IntegerPow, a.clone(), lower))
            }),
            Binary::Atan2 => {
                let norm = self.add(self.square(a.clone()), self.square(b.clone()));
                let of_a = times(ta, &|| b.clone());
                let of_b = times(tb, &|| negative(a.clone()));
                self.sum(of_a, of_b).map(|t| self.div(t, norm))
            }
            Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::ShiftLeft
            | Binary::ShiftRight
            | Binary::Eq
            | Binary::Gt
            | Binary::Ge
            | Binary::Lt
            | Binary::Le => None,
        }
    }

    pub(super) fn scalar_tangent(&self, op: Binary, number: ScalarIr, x: &AnyTensor<B>, t: AnyTensor<B>) -> Tangent<B> {
        match op {
            Binary::Add | Binary::Sub | Binary::Rem => Some(t),
            Binary::Mul | Binary::Div => Some(self.one(Primitive::BinaryScalar(op, number), [t])),
            Binary::Pow | Binary::IntegerPow => {
                let exponent = burn::tensor::Scalar::from(number).elem::<f64>();
                if exponent == 0.0 {
                    return None;
                }
                let lower = match op {
                    Binary::Pow => ScalarIr::Float(exponent - 1.0),
                    _ => ScalarIr::Int(exponent as i64 - 1),
                };
                let power = self.one(Primitive::BinaryScalar(op, lower), [x.clone()]);
                Some(self.mul(t, self.scalar(Binary::Mul, power, exponent)))
            }
            Binary::Atan2
            | Binary::And
            | Binary::Or
            | Binary::Xor
            | Binary::ShiftLeft
            | Binary::ShiftRight
            | Binary::Eq
            | Binary::Gt
            | Binary::Ge
            | Binary::Lt
            | Binary::Le => None,
        }
    }
}
