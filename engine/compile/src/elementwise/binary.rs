//! Element-wise functions of two arrays, or of an array and a scalar.

use burn::tensor::Scalar;
use burn_ir::ScalarIr;
use grove_backend::{
    AnyTensor, Backend,
    ops::{chain, int_division, loops},
};
use serde::{Deserialize, Serialize};

use super::{Kind, Unary, undefined};
use crate::{
    Primitive,
    jvp::{JvpRules, Tangent},
    target::Target,
};

/// An element-wise operation on two arrays, which are broadcast against each other, or on an array and a scalar.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    /// Power whose exponent has the dtype of the base.
    Pow,
    /// Power with an integer exponent.
    IntegerPow,
    Atan2,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
    Eq,
    Gt,
    Ge,
    Lt,
    Le,
}

/// Name and kernels of a function.
pub(crate) struct Facts {
    /// The name in `jax.lax` if it has one.
    pub name: &'static str,
    /// Kernel in fused chains.
    pub chain: Option<chain::Pair>,
    /// Function in plans of loops.
    pub looped: Looped,
}

/// A function in plans of loops.
#[derive(Clone, Copy)]
pub(crate) enum Looped {
    Values(loops::Binary),
    Comparison(loops::Comparison),
}

impl Binary {
    pub(crate) fn facts(self) -> Facts {
        use Looped::{Comparison, Values};
        use chain::Pair;
        use loops::{Binary as Of, Comparison as Compare};
        let (name, chain, looped) = match self {
            Self::Add => ("add", Some(Pair::Add), Values(Of::Add)),
            Self::Sub => ("sub", Some(Pair::Sub), Values(Of::Sub)),
            Self::Mul => ("mul", Some(Pair::Mul), Values(Of::Mul)),
            Self::Div => ("div", Some(Pair::Div), Values(Of::Div)),
            Self::Rem => ("rem", None, Values(Of::Rem)),
            Self::Pow => ("pow", Some(Pair::Pow), Values(Of::Pow)),
            Self::IntegerPow => ("integer_pow", None, Values(Of::Pow)),
            Self::Atan2 => ("atan2", None, Values(Of::Atan2)),
            Self::And => ("and", Some(Pair::And), Values(Of::And)),
            Self::Or => ("or", Some(Pair::Or), Values(Of::Or)),
            Self::Xor => ("xor", None, Values(Of::Xor)),
            Self::ShiftLeft => ("shift_left", None, Values(Of::ShiftLeft)),
            Self::ShiftRight => ("shift_right", None, Values(Of::ShiftRight)),
            Self::Eq => ("eq", Some(Pair::Eq), Comparison(Compare::Eq)),
            Self::Gt => ("gt", Some(Pair::Gt), Comparison(Compare::Gt)),
            Self::Ge => ("ge", Some(Pair::Ge), Comparison(Compare::Ge)),
            Self::Lt => ("lt", Some(Pair::Lt), Comparison(Compare::Lt)),
            Self::Le => ("le", Some(Pair::Le), Comparison(Compare::Le)),
        };
        Facts { name, chain, looped }
    }
}

impl Binary {
    /// Returns true if the function is defined for operands of these kinds.
    pub(crate) fn is_defined(self, a: Kind, b: Kind) -> bool {
        match self {
            Self::Add | Self::Sub | Self::Mul | Self::Div | Self::Rem => a != Kind::Bool && b == a,
            Self::Pow | Self::Atan2 => a == Kind::Float && b == a,
            Self::IntegerPow => a != Kind::Bool && b == Kind::Int,
            Self::And | Self::Or => a != Kind::Float && b == a,
            Self::Xor | Self::ShiftLeft | Self::ShiftRight => a == Kind::Int && b == a,
            Self::Eq => b == a,
            Self::Gt | Self::Ge | Self::Lt | Self::Le => a != Kind::Bool && b == a,
        }
    }

    /// Returns true if the results are booleans for operands of any kind.
    pub(crate) fn is_comparison(self) -> bool {
        matches!(self.facts().looped, Looped::Comparison(_))
    }

    pub(crate) fn evaluate<B: Backend>(self, a: AnyTensor<B>, b: AnyTensor<B>, target: &Target<'_, B>) -> AnyTensor<B> {
        let dtype = target.boolean();
        match (a, b) {
            (AnyTensor::Float(a), AnyTensor::Float(b)) => AnyTensor::Float(match self {
                Self::Add => B::float_add(a, b),
                Self::Sub => B::float_sub(a, b),
                Self::Mul => B::float_mul(a, b),
                Self::Div => B::float_div(a, b),
                Self::Rem => B::float_remainder(a, b),
                Self::Pow => B::float_powf(a, b),
                Self::Atan2 => B::float_atan2(a, b),
                Self::Eq => return AnyTensor::Bool(B::float_equal(a, b, dtype)),
                Self::Gt => return AnyTensor::Bool(B::float_greater(a, b, dtype)),
                Self::Ge => return AnyTensor::Bool(B::float_greater_equal(a, b, dtype)),
                Self::Lt => return AnyTensor::Bool(B::float_lower(a, b, dtype)),
                Self::Le => return AnyTensor::Bool(B::float_lower_equal(a, b, dtype)),
                Self::IntegerPow | Self::And | Self::Or | Self::Xor | Self::ShiftLeft | Self::ShiftRight => {
                    undefined(&self, &AnyTensor::<B>::Float(a))
                }
            }),
            (AnyTensor::Int(a), AnyTensor::Int(b)) => AnyTensor::Int(match self {
                Self::Add => B::int_add(a, b),
                Self::Sub => B::int_sub(a, b),
                Self::Mul => B::int_mul(a, b),
                Self::Div => int_division::quotient::<B>(a, b),
                Self::Rem => int_division::remainder::<B>(a, b),
                Self::IntegerPow => B::int_powi(a, b),
                Self::And => B::bitwise_and(a, b),
                Self::Or => B::bitwise_or(a, b),
                Self::Xor => B::bitwise_xor(a, b),
                Self::ShiftLeft => B::bitwise_left_shift(a, b),
                Self::ShiftRight => B::bitwise_right_shift(a, b),
                Self::Eq => return AnyTensor::Bool(B::int_equal(a, b, dtype)),
                Self::Gt => return AnyTensor::Bool(B::int_greater(a, b, dtype)),
                Self::Ge => return AnyTensor::Bool(B::int_greater_equal(a, b, dtype)),
                Self::Lt => return AnyTensor::Bool(B::int_lower(a, b, dtype)),
                Self::Le => return AnyTensor::Bool(B::int_lower_equal(a, b, dtype)),
                Self::Pow | Self::Atan2 => undefined(&self, &AnyTensor::<B>::Int(a)),
            }),
            (AnyTensor::Bool(a), AnyTensor::Bool(b)) => AnyTensor::Bool(match self {
                Self::And => B::bool_and(a, b),
                Self::Or => B::bool_or(a, b),
                Self::Eq => B::bool_equal(a, b),
                op => undefined(&op, &AnyTensor::<B>::Bool(a)),
            }),
            (AnyTensor::Float(a), AnyTensor::Int(b)) if self == Self::IntegerPow => {
                AnyTensor::Float(B::float_powi(a, b))
            }
            (a, _) => undefined(&self, &a),
        }
    }

    pub(crate) fn evaluate_scalar<B: Backend>(
        self,
        x: AnyTensor<B>,
        number: Scalar,
        target: &Target<'_, B>,
    ) -> AnyTensor<B> {
        let dtype = target.boolean();
        match x {
            AnyTensor::Float(x) => AnyTensor::Float(match self {
                Self::Add => B::float_add_scalar(x, number),
                Self::Sub => B::float_sub_scalar(x, number),
                Self::Mul => B::float_mul_scalar(x, number),
                Self::Div => B::float_div_scalar(x, number),
                Self::Rem => B::float_remainder_scalar(x, number),
                Self::Pow => B::float_powf_scalar(x, number),
                Self::IntegerPow => B::float_powi_scalar(x, number),
                Self::Eq => return AnyTensor::Bool(B::float_equal_elem(x, number, dtype)),
                Self::Gt => return AnyTensor::Bool(B::float_greater_elem(x, number, dtype)),
                Self::Ge => return AnyTensor::Bool(B::float_greater_equal_elem(x, number, dtype)),
                Self::Lt => return AnyTensor::Bool(B::float_lower_elem(x, number, dtype)),
                Self::Le => return AnyTensor::Bool(B::float_lower_equal_elem(x, number, dtype)),
                Self::Atan2 | Self::And | Self::Or | Self::Xor | Self::ShiftLeft | Self::ShiftRight => {
                    undefined(&self, &AnyTensor::<B>::Float(x))
                }
            }),
            AnyTensor::Int(x) => AnyTensor::Int(match self {
                Self::Add => B::int_add_scalar(x, number),
                Self::Sub => B::int_sub_scalar(x, number),
                Self::Mul => B::int_mul_scalar(x, number),
                Self::Div => int_division::quotient_by::<B>(x, number),
                Self::Rem => int_division::remainder_by::<B>(x, number),
                Self::IntegerPow => B::int_powi_scalar(x, number),
                Self::And => B::bitwise_and_scalar(x, number),
                Self::Or => B::bitwise_or_scalar(x, number),
                Self::Xor => B::bitwise_xor_scalar(x, number),
                Self::ShiftLeft => B::bitwise_left_shift_scalar(x, number),
                Self::ShiftRight => B::bitwise_right_shift_scalar(x, number),
                Self::Eq => return AnyTensor::Bool(B::int_equal_elem(x, number, dtype)),
                Self::Gt => return AnyTensor::Bool(B::int_greater_elem(x, number, dtype)),
                Self::Ge => return AnyTensor::Bool(B::int_greater_equal_elem(x, number, dtype)),
                Self::Lt => return AnyTensor::Bool(B::int_lower_elem(x, number, dtype)),
                Self::Le => return AnyTensor::Bool(B::int_lower_equal_elem(x, number, dtype)),
                Self::Pow | Self::Atan2 => undefined(&self, &AnyTensor::<B>::Int(x)),
            }),
            AnyTensor::Bool(x) if self == Self::Eq => AnyTensor::Bool(B::bool_equal_elem(x, number)),
            x => undefined(&self, &x),
        }
    }

    /// Returns the tangent of the result `y`. It may be smaller than `y`; the caller broadcasts it.
    pub(crate) fn tangent<B: Backend>(
        self,
        r: &JvpRules<'_, B>,
        [a, b]: [&AnyTensor<B>; 2],
        [ta, tb]: [Tangent<B>; 2],
        y: &AnyTensor<B>,
    ) -> Tangent<B> {
        let times = |t: Tangent<B>, factor: &dyn Fn() -> AnyTensor<B>| t.map(|t| r.mul(t, factor()));
        match self {
            Self::Add => r.sum(ta, tb),
            Self::Sub => match (ta, tb) {
                (Some(ta), Some(tb)) => Some(r.sub(ta, tb)),
                (ta, tb) => ta.or(tb.map(|tb| r.negative(tb))),
            },
            Self::Mul => r.sum(times(ta, &|| b.clone()), times(tb, &|| a.clone())),
            Self::Div => {
                let of_a = ta.map(|ta| r.div(ta, b.clone()));
                let of_b = tb.map(|tb| r.negative(r.div(r.mul(tb, y.clone()), b.clone())));
                r.sum(of_a, of_b)
            }
            Self::Rem => {
                let quotient = || r.negative(r.unary(Unary::Floor, r.div(a.clone(), b.clone())));
                r.sum(ta, times(tb, &quotient))
            }
            Self::Pow => {
                let zero = ScalarIr::Float(0.0);
                let is_zero = |x: &AnyTensor<B>| r.one(Primitive::BinaryScalar(Self::Eq, zero), [x.clone()]);
                let fill = |x, mask, value| r.one(Primitive::MaskFill(ScalarIr::Float(value)), [x, mask]);
                let fitted = |x: &AnyTensor<B>| r.fitted(x.clone(), y);
                // If base and exponent are 0, the derivative is 0, as for the constant 1, instead of 0 times infinity.
                let of_base = || {
                    let constant = r.binary(Self::And, is_zero(&fitted(a)), is_zero(&fitted(b)));
                    let lower = fill(fitted(&r.scalar(Self::Sub, b.clone(), 1.0)), constant, 0.0);
                    r.mul(b.clone(), r.binary(Self::Pow, a.clone(), lower))
                };
                // If the base is 0, the power does not depend on the exponent, and the logarithm is not finite.
                let of_exponent = || r.mul(y.clone(), r.unary(Unary::Log, fill(a.clone(), is_zero(a), 1.0)));
                r.sum(times(ta, &of_base), times(tb, &of_exponent))
            }
            Self::IntegerPow => times(ta, &|| {
                let lower = r.one(Primitive::BinaryScalar(Self::Sub, ScalarIr::Int(1)), [b.clone()]);
                let factor = r.one(Primitive::Convert(a.dtype()), [b.clone()]);
                r.mul(factor, r.binary(Self::IntegerPow, a.clone(), lower))
            }),
            Self::Atan2 => {
                let norm = r.add(r.square(a.clone()), r.square(b.clone()));
                let of_a = times(ta, &|| b.clone());
                let of_b = times(tb, &|| r.negative(a.clone()));
                r.sum(of_a, of_b).map(|t| r.div(t, norm))
            }
            Self::And | Self::Or | Self::Xor | Self::ShiftLeft | Self::ShiftRight => None,
            Self::Eq | Self::Gt | Self::Ge | Self::Lt | Self::Le => None,
        }
    }

    /// Returns the tangent of the result for a scalar operand.
    pub(crate) fn scalar_tangent<B: Backend>(
        self,
        r: &JvpRules<'_, B>,
        number: ScalarIr,
        x: &AnyTensor<B>,
        t: AnyTensor<B>,
    ) -> Tangent<B> {
        match self {
            Self::Add | Self::Sub | Self::Rem => Some(t),
            Self::Mul | Self::Div => Some(r.one(Primitive::BinaryScalar(self, number), [t])),
            Self::Pow | Self::IntegerPow => {
                let exponent = Scalar::from(number).elem::<f64>();
                if exponent == 0.0 {
                    return None;
                }
                let lower = match self {
                    Self::Pow => ScalarIr::Float(exponent - 1.0),
                    _ => ScalarIr::Int(exponent as i64 - 1),
                };
                let power = r.one(Primitive::BinaryScalar(self, lower), [x.clone()]);
                Some(r.mul(t, r.scalar(Self::Mul, power, exponent)))
            }
            Self::Atan2 | Self::And | Self::Or | Self::Xor | Self::ShiftLeft | Self::ShiftRight => None,
            Self::Eq | Self::Gt | Self::Ge | Self::Lt | Self::Le => None,
        }
    }
}
