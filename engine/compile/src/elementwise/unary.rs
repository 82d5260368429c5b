//! Element-wise functions of one array.

use grove_backend::{
    AnyTensor, Backend,
    ops::{chain::Map, loops},
};
use serde::{Deserialize, Serialize};

use super::{Binary, Kind, undefined};
use crate::{
    jvp::{JvpRules, Tangent},
    target::Target,
};

/// An element-wise operation on one array.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Unary {
    Abs,
    Exp,
    Log,
    Log1p,
    Sqrt,
    Recip,
    Erf,
    Sin,
    Cos,
    Tan,
    Sinh,
    Cosh,
    Tanh,
    Asin,
    Acos,
    Atan,
    Asinh,
    Acosh,
    Atanh,
    Sigmoid,
    Round,
    Floor,
    Ceil,
    Trunc,
    IsNan,
    IsInf,
    Not,
}

/// Name and kernels of a function.
pub(crate) struct Facts {
    /// The name in `jax.lax` if it has one.
    pub name: &'static str,
    /// Kernel in fused chains.
    pub chain: Option<Map>,
    /// Function in plans of loops.
    pub looped: Option<loops::Unary>,
}

impl Unary {
    pub(crate) fn facts(self) -> Facts {
        use loops::Unary as Of;
        let (name, chain, looped) = match self {
            Self::Abs => ("abs", Some(Map::Abs), Some(Of::Abs)),
            Self::Exp => ("exp", Some(Map::Exp), Some(Of::Exp)),
            Self::Log => ("log", Some(Map::Log), Some(Of::Log)),
            Self::Log1p => ("log1p", Some(Map::Log1p), Some(Of::Log1p)),
            Self::Sqrt => ("sqrt", Some(Map::Sqrt), Some(Of::Sqrt)),
            Self::Recip => ("recip", Some(Map::Recip), Some(Of::Recip)),
            Self::Erf => ("erf", Some(Map::Erf), None),
            Self::Sin => ("sin", Some(Map::Sin), Some(Of::Sin)),
            Self::Cos => ("cos", Some(Map::Cos), Some(Of::Cos)),
            Self::Tan => ("tan", None, Some(Of::Tan)),
            Self::Sinh => ("sinh", None, Some(Of::Sinh)),
            Self::Cosh => ("cosh", None, Some(Of::Cosh)),
            Self::Tanh => ("tanh", Some(Map::Tanh), Some(Of::Tanh)),
            Self::Asin => ("asin", None, Some(Of::Asin)),
            Self::Acos => ("acos", None, Some(Of::Acos)),
            Self::Atan => ("atan", None, Some(Of::Atan)),
            Self::Asinh => ("asinh", None, Some(Of::Asinh)),
            Self::Acosh => ("acosh", None, Some(Of::Acosh)),
            Self::Atanh => ("atanh", None, Some(Of::Atanh)),
            Self::Sigmoid => ("logistic", None, Some(Of::Sigmoid)),
            Self::Round => ("round", None, Some(Of::Round)),
            Self::Floor => ("floor", Some(Map::Floor), Some(Of::Floor)),
            Self::Ceil => ("ceil", Some(Map::Ceil), Some(Of::Ceil)),
            Self::Trunc => ("trunc", Some(Map::Trunc), Some(Of::Trunc)),
            // Tests have instructions of their own.
            Self::IsNan => ("is_nan", Some(Map::IsNan), None),
            Self::IsInf => ("is_inf", None, None),
            Self::Not => ("not", Some(Map::Not), Some(Of::Not)),
        };
        Facts { name, chain, looped }
    }
}

impl Unary {
    /// Returns true if the function is defined for elements of a kind.
    pub(crate) fn is_defined(self, kind: Kind) -> bool {
        match self {
            Self::Abs => kind != Kind::Bool,
            Self::Not => kind != Kind::Float,
            _ => kind == Kind::Float,
        }
    }

    /// Returns true if the results are booleans for elements of any kind.
    pub(crate) fn is_test(self) -> bool {
        matches!(self, Self::IsNan | Self::IsInf)
    }

    pub(crate) fn evaluate<B: Backend>(self, x: AnyTensor<B>, target: &Target<'_, B>) -> AnyTensor<B> {
        match (self, x) {
            (Self::Abs, AnyTensor::Int(x)) => AnyTensor::Int(B::int_abs(x)),
            (Self::Not, AnyTensor::Int(x)) => AnyTensor::Int(B::bitwise_not(x)),
            (Self::Not, AnyTensor::Bool(x)) => AnyTensor::Bool(B::bool_not(x)),
            (op, AnyTensor::Float(x)) => AnyTensor::Float(match op {
                Self::Abs => B::float_abs(x),
                Self::Exp => B::float_exp(x),
                Self::Log => B::float_log(x),
                Self::Log1p => B::float_log1p(x),
                Self::Sqrt => B::float_sqrt(x),
                Self::Recip => B::float_recip(x),
                Self::Erf => B::float_erf(x),
                Self::Sin => B::float_sin(x),
                Self::Cos => B::float_cos(x),
                Self::Tan => B::float_tan(x),
                Self::Sinh => B::float_sinh(x),
                Self::Cosh => B::float_cosh(x),
                Self::Tanh => B::float_tanh(x),
                Self::Asin => B::float_asin(x),
                Self::Acos => B::float_acos(x),
                Self::Atan => B::float_atan(x),
                Self::Asinh => B::float_asinh(x),
                Self::Acosh => B::float_acosh(x),
                Self::Atanh => B::float_atanh(x),
                Self::Sigmoid => B::sigmoid(x),
                Self::Round => B::float_round(x),
                Self::Floor => B::float_floor(x),
                Self::Ceil => B::float_ceil(x),
                Self::Trunc => B::float_trunc(x),
                Self::IsNan => return AnyTensor::Bool(B::float_is_nan(x, target.boolean())),
                Self::IsInf => return AnyTensor::Bool(B::float_is_inf(x, target.boolean())),
                Self::Not => undefined(&op, &AnyTensor::<B>::Float(x)),
            }),
            (op, x) => undefined(&op, &x),
        }
    }

    /// Returns the tangent of the result `y`, from the argument `x` and its tangent `t`.
    pub(crate) fn tangent<B: Backend>(
        self,
        r: &JvpRules<'_, B>,
        x: AnyTensor<B>,
        t: AnyTensor<B>,
        y: AnyTensor<B>,
    ) -> Tangent<B> {
        Some(match self {
            Self::Abs => r.mul(t, x.sign()),
            Self::Exp => r.mul(t, y),
            Self::Log => r.div(t, x),
            Self::Log1p => r.div(t, r.plus_one(x)),
            Self::Sqrt => r.div(t, r.scalar(Binary::Mul, y, 2.0)),
            Self::Recip => r.negative(r.mul(t, r.square(y))),
            Self::Erf => {
                let slope = r.unary(Self::Exp, r.negative(r.square(x)));
                r.scalar(Binary::Mul, r.mul(t, slope), std::f64::consts::FRAC_2_SQRT_PI)
            }
            Self::Sin => r.mul(t, r.unary(Self::Cos, x)),
            Self::Cos => r.negative(r.mul(t, r.unary(Self::Sin, x))),
            Self::Tan => r.mul(t, r.plus_one(r.square(y))),
            Self::Sinh => r.mul(t, r.unary(Self::Cosh, x)),
            Self::Cosh => r.mul(t, r.unary(Self::Sinh, x)),
            Self::Tanh => r.mul(t, r.one_minus(r.square(y))),
            Self::Asin => r.div(t, r.sqrt(r.one_minus(r.square(x)))),
            Self::Acos => r.negative(r.div(t, r.sqrt(r.one_minus(r.square(x))))),
            Self::Atan => r.div(t, r.plus_one(r.square(x))),
            Self::Asinh => r.div(t, r.sqrt(r.plus_one(r.square(x)))),
            Self::Acosh => r.div(t, r.sqrt(r.scalar(Binary::Sub, r.square(x), 1.0))),
            Self::Atanh => r.div(t, r.one_minus(r.square(x))),
            Self::Sigmoid => r.mul(t, r.mul(y.clone(), r.one_minus(y))),
            // Step functions, and functions whose results are not floating-point.
            Self::Round | Self::Floor | Self::Ceil | Self::Trunc | Self::IsNan | Self::IsInf | Self::Not => {
                return None;
            }
        })
    }
}
