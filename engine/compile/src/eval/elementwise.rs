//! Element-wise operations.

use burn::tensor::Scalar;
use grove_backend::{
    Backend,
    ops::{AnyTensor, int_division},
};

use super::kind;
use crate::{
    primitive::{Binary, Unary},
    target::Target,
};

fn undefined<B: Backend>(op: &impl std::fmt::Debug, x: &AnyTensor<B>) -> ! {
    panic!("{op:?} is not defined for {}", kind(x))
}

pub(super) fn unary<B: Backend>(op: Unary, x: AnyTensor<B>, target: &Target<'_, B>) -> AnyTensor<B> {
    AnyTensor::Float(match (op, x) {
        (Unary::Abs, AnyTensor::Float(x)) => B::float_abs(x),
        (Unary::Exp, AnyTensor::Float(x)) => B::float_exp(x),
        (Unary::Log, AnyTensor::Float(x)) => B::float_log(x),
        (Unary::Log1p, AnyTensor::Float(x)) => B::float_log1p(x),
        (Unary::Sqrt, AnyTensor::Float(x)) => B::float_sqrt(x),
        (Unary::Recip, AnyTensor::Float(x)) => B::float_recip(x),
        (Unary::Erf, AnyTensor::Float(x)) => B::float_erf(x),
        (Unary::Sin, AnyTensor::Float(x)) => B::float_sin(x),
        (Unary::Cos, AnyTensor::Float(x)) => B::float_cos(x),
        (Unary::Tan, AnyTensor::Float(x)) => B::float_tan(x),
        (Unary::Sinh, AnyTensor::Float(x)) => B::float_sinh(x),
        (Unary::Cosh, AnyTensor::Float(x)) => B::float_cosh(x),
        (Unary::Tanh, AnyTensor::Float(x)) => B::float_tanh(x),
        (Unary::Asin, AnyTensor::Float(x)) => B::float_asin(x),
        (Unary::Acos, AnyTensor::Float(x)) => B::float_acos(x),
        (Unary::Atan, AnyTensor::Float(x)) => B::float_atan(x),
        (Unary::Asinh, AnyTensor::Float(x)) => B::float_asinh(x),
        (Unary::Acosh, AnyTensor::Float(x)) => B::float_acosh(x),
        (Unary::Atanh, AnyTensor::Float(x)) => B::float_atanh(x),
        (Unary::Sigmoid, AnyTensor::Float(x)) => B::sigmoid(x),
        (Unary::Round, AnyTensor::Float(x)) => B::float_round(x),
        (Unary::Floor, AnyTensor::Float(x)) => B::float_floor(x),
        (Unary::Ceil, AnyTensor::Float(x)) => B::float_ceil(x),
        (Unary::Trunc, AnyTensor::Float(x)) => B::float_trunc(x),
        (Unary::IsNan, AnyTensor::Float(x)) => return AnyTensor::Bool(B::float_is_nan(x, target.boolean())),
        (Unary::IsInf, AnyTensor::Float(x)) => return AnyTensor::Bool(B::float_is_inf(x, target.boolean())),
        (Unary::Abs, AnyTensor::Int(x)) => return AnyTensor::Int(B::int_abs(x)),
        (Unary::Not, AnyTensor::Int(x)) => return AnyTensor::Int(B::bitwise_not(x)),
        (Unary::Not, AnyTensor::Bool(x)) => return AnyTensor::Bool(B::bool_not(x)),
        (op, x) => undefined(&op, &x),
    })
}

pub(super) fn binary<B: Backend>(op: Binary, a: AnyTensor<B>, b: AnyTensor<B>, target: &Target<'_, B>) -> AnyTensor<B> {
    let dtype = target.boolean();
    match (a, b) {
        (AnyTensor::Float(a), AnyTensor::Float(b)) => AnyTensor::Float(match op {
            Binary::Add => B::float_add(a, b),
            Binary::Sub => B::float_sub(a, b),
            Binary::Mul => B::float_mul(a, b),
            Binary::Div => B::float_div(a, b),
            Binary::Rem => B::float_remainder(a, b),
            Binary::Pow => B::float_powf(a, b),
            Binary::Atan2 => B::float_atan2(a, b),
            Binary::Eq => return AnyTensor::Bool(B::float_equal(a, b, dtype)),
            Binary::Gt => return AnyTensor::Bool(B::float_greater(a, b, dtype)),
            Binary::Ge => return AnyTensor::Bool(B::float_greater_equal(a, b, dtype)),
            Binary::Lt => return AnyTensor::Bool(B::float_lower(a, b, dtype)),
            Binary::Le => return AnyTensor::Bool(B::float_lower_equal(a, b, dtype)),
            op => undefined(&op, &AnyTensor::<B>::Float(a)),
        }),
        (AnyTensor::Int(a), AnyTensor::Int(b)) => AnyTensor::Int(match op {
            Binary::Add => B::int_add(a, b),
            Binary::Sub => B::int_sub(a, b),
            Binary::Mul => B::int_mul(a, b),
            Binary::Div => int_division::quotient::<B>(a, b),
            Binary::Rem => int_division::remainder::<B>(a, b),
            Binary::IntegerPow => B::int_powi(a, b),
            Binary::And => B::bitwise_and(a, b),
            Binary::Or => B::bitwise_or(a, b),
            Binary::Xor => B::bitwise_xor(a, b),
            Binary::ShiftLeft => B::bitwise_left_shift(a, b),
            Binary::ShiftRight => B::bitwise_right_shift(a, b),
            Binary::Eq => return AnyTensor::Bool(B::int_equal(a, b, dtype)),
            Binary::Gt => return AnyTensor::Bool(B::int_greater(a, b, dtype)),
            Binary::Ge => return AnyTensor::Bool(B::int_greater_equal(a, b, dtype)),
            Binary::Lt => return AnyTensor::Bool(B::int_lower(a, b, dtype)),
            Binary::Le => return AnyTensor::Bool(B::int_lower_equal(a, b, dtype)),
            op @ (Binary::Pow | Binary::Atan2) => undefined(&op, &AnyTensor::<B>::Int(a)),
        }),
        (AnyTensor::Bool(a), AnyTensor::Bool(b)) => AnyTensor::Bool(match op {
            Binary::And => B::bool_and(a, b),
            Binary::Or => B::bool_or(a, b),
            Binary::Eq => B::bool_equal(a, b),
            op => undefined(&op, &AnyTensor::<B>::Bool(a)),
        }),
        (AnyTensor::Float(a), AnyTensor::Int(b)) if op == Binary::IntegerPow => AnyTensor::Float(B::float_powi(a, b)),
        (a, _) => undefined(&op, &a),
    }
}

pub(super) fn scalar<B: Backend>(op: Binary, x: AnyTensor<B>, number: Scalar, target: &Target<'_, B>) -> AnyTensor<B> {
    let dtype = target.boolean();
    match x {
        AnyTensor::Float(x) => AnyTensor::Float(match op {
            Binary::Add => B::float_add_scalar(x, number),
            Binary::Sub => B::float_sub_scalar(x, number),
            Binary::Mul => B::float_mul_scalar(x, number),
            Binary::Div => B::float_div_scalar(x, number),
            Binary::Rem => B::float_remainder_scalar(x, number),
            Binary::Pow => B::float_powf_scalar(x, number),
            Binary::IntegerPow => B::float_powi_scalar(x, number),
            Binary::Eq => return AnyTensor::Bool(B::float_equal_elem(x, number, dtype)),
            Binary::Gt => return AnyTensor::Bool(B::float_greater_elem(x, number, dtype)),
            Binary::Ge => return AnyTensor::Bool(B::float_greater_equal_elem(x, number, dtype)),
            Binary::Lt => return AnyTensor::Bool(B::float_lower_elem(x, number, dtype)),
            Binary::Le => return AnyTensor::Bool(B::float_lower_equal_elem(x, number, dtype)),
            op => undefined(&op, &AnyTensor::<B>::Float(x)),
        }),
        AnyTensor::Int(x) => AnyTensor::Int(match op {
            Binary::Add => B::int_add_scalar(x, number),
            Binary::Sub => B::int_sub_scalar(x, number),
            Binary::Mul => B::int_mul_scalar(x, number),
            Binary::Div => int_division::quotient_by::<B>(x, number),
            Binary::Rem => int_division::remainder_by::<B>(x, number),
            Binary::IntegerPow => B::int_powi_scalar(x, number),
            Binary::And => B::bitwise_and_scalar(x, number),
            Binary::Or => B::bitwise_or_scalar(x, number),
            Binary::Xor => B::bitwise_xor_scalar(x, number),
            Binary::ShiftLeft => B::bitwise_left_shift_scalar(x, number),
            Binary::ShiftRight => B::bitwise_right_shift_scalar(x, number),
            Binary::Eq => return AnyTensor::Bool(B::int_equal_elem(x, number, dtype)),
            Binary::Gt => return AnyTensor::Bool(B::int_greater_elem(x, number, dtype)),
            Binary::Ge => return AnyTensor::Bool(B::int_greater_equal_elem(x, number, dtype)),
            Binary::Lt => return AnyTensor::Bool(B::int_lower_elem(x, number, dtype)),
            Binary::Le => return AnyTensor::Bool(B::int_lower_equal_elem(x, number, dtype)),
            op @ (Binary::Pow | Binary::Atan2) => undefined(&op, &AnyTensor::<B>::Int(x)),
        }),
        AnyTensor::Bool(x) if op == Binary::Eq => AnyTensor::Bool(B::bool_equal_elem(x, number)),
        x => undefined(&op, &x),
    }
}
