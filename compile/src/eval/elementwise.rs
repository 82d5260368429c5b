//! Functions of elements.

use burn::tensor::Scalar;
use grove_backend::{Backend, ops::Value};

use super::{Target, kind};
use crate::primitive::{Binary, Unary};

fn undefined<B: Backend>(op: &impl std::fmt::Debug, x: &Value<B>) -> ! {
    panic!("{op:?} is not defined for {}", kind(x))
}

pub(super) fn unary<B: Backend>(op: Unary, x: Value<B>, target: &Target<'_, B>) -> Value<B> {
    Value::Float(match (op, x) {
        (Unary::Abs, Value::Float(x)) => B::float_abs(x),
        (Unary::Exp, Value::Float(x)) => B::float_exp(x),
        (Unary::Log, Value::Float(x)) => B::float_log(x),
        (Unary::Log1p, Value::Float(x)) => B::float_log1p(x),
        (Unary::Sqrt, Value::Float(x)) => B::float_sqrt(x),
        (Unary::Recip, Value::Float(x)) => B::float_recip(x),
        (Unary::Erf, Value::Float(x)) => B::float_erf(x),
        (Unary::Sin, Value::Float(x)) => B::float_sin(x),
        (Unary::Cos, Value::Float(x)) => B::float_cos(x),
        (Unary::Tan, Value::Float(x)) => B::float_tan(x),
        (Unary::Sinh, Value::Float(x)) => B::float_sinh(x),
        (Unary::Cosh, Value::Float(x)) => B::float_cosh(x),
        (Unary::Tanh, Value::Float(x)) => B::float_tanh(x),
        (Unary::Asin, Value::Float(x)) => B::float_asin(x),
        (Unary::Acos, Value::Float(x)) => B::float_acos(x),
        (Unary::Atan, Value::Float(x)) => B::float_atan(x),
        (Unary::Asinh, Value::Float(x)) => B::float_asinh(x),
        (Unary::Acosh, Value::Float(x)) => B::float_acosh(x),
        (Unary::Atanh, Value::Float(x)) => B::float_atanh(x),
        (Unary::Round, Value::Float(x)) => B::float_round(x),
        (Unary::Floor, Value::Float(x)) => B::float_floor(x),
        (Unary::Ceil, Value::Float(x)) => B::float_ceil(x),
        (Unary::Trunc, Value::Float(x)) => B::float_trunc(x),
        (Unary::IsNan, Value::Float(x)) => return Value::Bool(B::float_is_nan(x, target.boolean())),
        (Unary::IsInf, Value::Float(x)) => return Value::Bool(B::float_is_inf(x, target.boolean())),
        (Unary::Abs, Value::Int(x)) => return Value::Int(B::int_abs(x)),
        (Unary::Not, Value::Int(x)) => return Value::Int(B::bitwise_not(x)),
        (Unary::Not, Value::Bool(x)) => return Value::Bool(B::bool_not(x)),
        (op, x) => undefined(&op, &x),
    })
}

pub(super) fn binary<B: Backend>(op: Binary, a: Value<B>, b: Value<B>, target: &Target<'_, B>) -> Value<B> {
    let dtype = target.boolean();
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => Value::Float(match op {
            Binary::Add => B::float_add(a, b),
            Binary::Sub => B::float_sub(a, b),
            Binary::Mul => B::float_mul(a, b),
            Binary::Div => B::float_div(a, b),
            Binary::Rem => B::float_remainder(a, b),
            Binary::Pow => B::float_powf(a, b),
            Binary::Atan2 => B::float_atan2(a, b),
            Binary::Eq => return Value::Bool(B::float_equal(a, b, dtype)),
            Binary::Gt => return Value::Bool(B::float_greater(a, b, dtype)),
            Binary::Ge => return Value::Bool(B::float_greater_equal(a, b, dtype)),
            Binary::Lt => return Value::Bool(B::float_lower(a, b, dtype)),
            Binary::Le => return Value::Bool(B::float_lower_equal(a, b, dtype)),
            op => undefined(&op, &Value::<B>::Float(a)),
        }),
        (Value::Int(a), Value::Int(b)) => Value::Int(match op {
            Binary::Add => B::int_add(a, b),
            Binary::Sub => B::int_sub(a, b),
            Binary::Mul => B::int_mul(a, b),
            Binary::Div => B::int_div(a, b),
            Binary::Rem => B::int_remainder(a, b),
            Binary::IntegerPow => B::int_powi(a, b),
            Binary::And => B::bitwise_and(a, b),
            Binary::Or => B::bitwise_or(a, b),
            Binary::Xor => B::bitwise_xor(a, b),
            Binary::ShiftLeft => B::bitwise_left_shift(a, b),
            Binary::ShiftRight => B::bitwise_right_shift(a, b),
            Binary::Eq => return Value::Bool(B::int_equal(a, b, dtype)),
            Binary::Gt => return Value::Bool(B::int_greater(a, b, dtype)),
            Binary::Ge => return Value::Bool(B::int_greater_equal(a, b, dtype)),
            Binary::Lt => return Value::Bool(B::int_lower(a, b, dtype)),
            Binary::Le => return Value::Bool(B::int_lower_equal(a, b, dtype)),
            op @ (Binary::Pow | Binary::Atan2) => undefined(&op, &Value::<B>::Int(a)),
        }),
        (Value::Bool(a), Value::Bool(b)) => Value::Bool(match op {
            Binary::And => B::bool_and(a, b),
            Binary::Or => B::bool_or(a, b),
            Binary::Eq => B::bool_equal(a, b),
            op => undefined(&op, &Value::<B>::Bool(a)),
        }),
        (Value::Float(a), Value::Int(b)) if op == Binary::IntegerPow => Value::Float(B::float_powi(a, b)),
        (a, _) => undefined(&op, &a),
    }
}

pub(super) fn scalar<B: Backend>(op: Binary, x: Value<B>, number: Scalar, target: &Target<'_, B>) -> Value<B> {
    let dtype = target.boolean();
    match x {
        Value::Float(x) => Value::Float(match op {
            Binary::Add => B::float_add_scalar(x, number),
            Binary::Sub => B::float_sub_scalar(x, number),
            Binary::Mul => B::float_mul_scalar(x, number),
            Binary::Div => B::float_div_scalar(x, number),
            Binary::Rem => B::float_remainder_scalar(x, number),
            Binary::Pow => B::float_powf_scalar(x, number),
            Binary::IntegerPow => B::float_powi_scalar(x, number),
            Binary::Eq => return Value::Bool(B::float_equal_elem(x, number, dtype)),
            Binary::Gt => return Value::Bool(B::float_greater_elem(x, number, dtype)),
            Binary::Ge => return Value::Bool(B::float_greater_equal_elem(x, number, dtype)),
            Binary::Lt => return Value::Bool(B::float_lower_elem(x, number, dtype)),
            Binary::Le => return Value::Bool(B::float_lower_equal_elem(x, number, dtype)),
            op => undefined(&op, &Value::<B>::Float(x)),
        }),
        Value::Int(x) => Value::Int(match op {
            Binary::Add => B::int_add_scalar(x, number),
            Binary::Sub => B::int_sub_scalar(x, number),
            Binary::Mul => B::int_mul_scalar(x, number),
            Binary::Div => B::int_div_scalar(x, number),
            Binary::Rem => B::int_remainder_scalar(x, number),
            Binary::IntegerPow => B::int_powi_scalar(x, number),
            Binary::And => B::bitwise_and_scalar(x, number),
            Binary::Or => B::bitwise_or_scalar(x, number),
            Binary::Xor => B::bitwise_xor_scalar(x, number),
            Binary::ShiftLeft => B::bitwise_left_shift_scalar(x, number),
            Binary::ShiftRight => B::bitwise_right_shift_scalar(x, number),
            Binary::Eq => return Value::Bool(B::int_equal_elem(x, number, dtype)),
            Binary::Gt => return Value::Bool(B::int_greater_elem(x, number, dtype)),
            Binary::Ge => return Value::Bool(B::int_greater_equal_elem(x, number, dtype)),
            Binary::Lt => return Value::Bool(B::int_lower_elem(x, number, dtype)),
            Binary::Le => return Value::Bool(B::int_lower_equal_elem(x, number, dtype)),
            op @ (Binary::Pow | Binary::Atan2) => undefined(&op, &Value::<B>::Int(x)),
        }),
        Value::Bool(x) if op == Binary::Eq => Value::Bool(B::bool_equal_elem(x, number)),
        x => undefined(&op, &x),
    }
}
