//! Division of integers with the values of JAX for every divisor.
//!
//! On CPUs Burn's methods panic at a divisor of 0, and at the lowest value divided by -1. candle refuses numbers as divisors,
//! and its remainders have the sign of the dividend.

use burn::tensor::{
    DType, Int, Scalar, Shape, Tensor, TensorMetadata,
    ops::{BoolTensor, IntTensor},
};
use burn_backend::get_device_settings;
use std::ops::RangeInclusive;

use super::Backend;

/// Divides integers and rounds towards zero: `jax.lax.div`. The quotient by 0 has all bits set, which is -1 if it is signed;
/// the lowest value divided by -1 is itself.
///
/// Burn's operator `/` computes the same in traces and on [`Autodiff`](crate::Autodiff). Elsewhere it panics at these
/// divisors, or gives what the device gives.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_backend::{Flex, ops};
/// let ints = |values: [i32; 3]| Tensor::<Flex, 1, Int>::from_ints(values, &Default::default());
/// let quotients = ops::int_div(ints([7, -7, 7]), ints([2, 2, 0]));
/// assert_eq!(quotients.into_data().iter::<i64>().collect::<Vec<_>>(), [3, -3, -1]);
/// ```
pub fn int_div<B: Backend, const D: usize>(a: Tensor<B, D, Int>, b: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
    Tensor::from_primitive(quotient::<B>(a.into_primitive(), b.into_primitive()))
}

/// Returns the remainder of integers, with the sign of the divisor: `jax.numpy.remainder`. The remainder by 0 is 0.
///
/// Burn's operator `%` computes the same in traces and on [`Autodiff`](crate::Autodiff).
pub fn int_remainder<B: Backend, const D: usize>(a: Tensor<B, D, Int>, b: Tensor<B, D, Int>) -> Tensor<B, D, Int> {
    Tensor::from_primitive(remainder::<B>(a.into_primitive(), b.into_primitive()))
}

/// [`int_div`] of primitives.
pub fn quotient<B: Backend>(a: IntTensor<B>, b: IntTensor<B>) -> IntTensor<B> {
    if B::DIVIDES_BY_ZERO {
        return B::int_div(a, b);
    }
    let all_bits = all_bits(b.dtype());
    let Divisor { divisor, is_zero, is_minus_one } = Divisor::<B>::of(b);
    let y = B::int_div(a, divisor);
    let shape = y.shape();
    let y = match is_minus_one {
        Some(places) => {
            let negative = B::int_neg(y.clone());
            B::int_mask_where(y, B::bool_expand(places, shape.clone()), negative)
        }
        None => y,
    };
    B::int_mask_fill(y, B::bool_expand(is_zero, shape), all_bits)
}

/// [`int_remainder`] of primitives.
pub fn remainder<B: Backend>(a: IntTensor<B>, b: IntTensor<B>) -> IntTensor<B> {
    if B::DIVIDES_BY_ZERO {
        return B::int_remainder(a, b);
    }
    let Divisor { divisor, is_minus_one, .. } = Divisor::<B>::of(b);
    if is_minus_one.is_none() {
        return B::int_remainder(a, divisor);
    }
    let multiple = B::int_mul(B::int_div(a.clone(), divisor.clone()), divisor.clone());
    let y = B::int_sub(a, multiple);
    let divisor = B::int_expand(divisor, y.shape());
    let dtype = get_device_settings::<B>(&B::int_device(&y)).bool_dtype;
    let is_negative = |x: &IntTensor<B>| B::int_lower_elem(x.clone(), 0.into(), dtype);
    let signs_differ = B::bool_not_equal(is_negative(&y), is_negative(&divisor));
    let is_inexact = B::int_not_equal_elem(y.clone(), 0.into(), dtype);
    let next = B::int_add(y.clone(), divisor);
    B::int_mask_where(y, B::bool_and(signs_differ, is_inexact), next)
}

/// [`quotient`] by a number.
pub fn quotient_by<B: Backend>(x: IntTensor<B>, number: Scalar) -> IntTensor<B> {
    if B::DIVIDES_BY_ZERO || defined_divisor::<B>(&x, number).is_some() {
        return B::int_div_scalar(x, number);
    }
    let divisor = one_element::<B>(&x, number);
    quotient::<B>(x, divisor)
}

/// [`remainder`] by a number.
pub fn remainder_by<B: Backend>(x: IntTensor<B>, number: Scalar) -> IntTensor<B> {
    if B::DIVIDES_BY_ZERO {
        return B::int_remainder_scalar(x, number);
    }
    let Some(divisor) = defined_divisor::<B>(&x, number) else {
        let divisor = one_element::<B>(&x, number);
        return remainder::<B>(x, divisor);
    };
    if is_unsigned(x.dtype()) {
        return B::int_remainder_scalar(x, number);
    }
    let multiple = B::int_mul_scalar(B::int_div_scalar(x.clone(), number), number);
    // The sign is that of `x`, or the remainder is 0.
    let y = B::int_sub(x, multiple);
    let dtype = get_device_settings::<B>(&B::int_device(&y)).bool_dtype;
    let signs_differ = match divisor < 0 {
        true => B::int_greater_elem(y.clone(), 0.into(), dtype),
        false => B::int_lower_elem(y.clone(), 0.into(), dtype),
    };
    let next = B::int_add_scalar(y.clone(), number);
    B::int_mask_where(y, signs_differ, next)
}

/// Returns the number if Burn's division by it is defined: neither 0 nor -1, and within the dtype of `x`.
fn defined_divisor<B: Backend>(x: &IntTensor<B>, number: Scalar) -> Option<i64> {
    let range: RangeInclusive<i64> = match x.dtype() {
        DType::I64 => i64::MIN..=i64::MAX,
        DType::I32 => i32::MIN.into()..=i32::MAX.into(),
        DType::I16 => i16::MIN.into()..=i16::MAX.into(),
        DType::I8 => i8::MIN.into()..=i8::MAX.into(),
        DType::U32 => 0..=u32::MAX.into(),
        DType::U16 => 0..=u16::MAX.into(),
        DType::U8 => 0..=u8::MAX.into(),
        _ => return None,
    };
    let number = match number {
        Scalar::Int(number) => number,
        Scalar::UInt(number) => number.try_into().ok()?,
        Scalar::Float(_) | Scalar::Bool(_) => return None,
    };
    (B::DIVIDES_BY_NUMBERS && number != 0 && number != -1 && range.contains(&number)).then_some(number)
}

/// Returns a number as an array that is broadcast against `x`.
fn one_element<B: Backend>(x: &IntTensor<B>, number: Scalar) -> IntTensor<B> {
    let shape = Shape::from(vec![1; x.shape().num_dims()]);
    B::int_full(shape, number, &B::int_device(x), x.dtype().into())
}

/// A divisor without the values at which division is not defined.
struct Divisor<B: Backend> {
    /// 1 in place of these values.
    divisor: IntTensor<B>,
    is_zero: BoolTensor<B>,
    /// `None` for unsigned dtypes.
    is_minus_one: Option<BoolTensor<B>>,
}

impl<B: Backend> Divisor<B> {
    fn of(b: IntTensor<B>) -> Self {
        let dtype = get_device_settings::<B>(&B::int_device(&b)).bool_dtype;
        let equals = |number: i64| B::int_equal_elem(b.clone(), number.into(), dtype);
        let (is_zero, is_minus_one) = (equals(0), (!is_unsigned(b.dtype())).then(|| equals(-1)));
        let one_at = |x, places: &BoolTensor<B>| B::int_mask_fill(x, places.clone(), 1.into());
        let divisor = one_at(b, &is_zero);
        let divisor = is_minus_one.iter().fold(divisor, one_at);
        Self { divisor, is_zero, is_minus_one }
    }
}

fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype, DType::U8 | DType::U16 | DType::U32 | DType::U64)
}

/// Returns the value of an integer dtype with all bits set.
fn all_bits(dtype: DType) -> Scalar {
    match dtype {
        DType::U8 => Scalar::UInt(u8::MAX.into()),
        DType::U16 => Scalar::UInt(u16::MAX.into()),
        DType::U32 => Scalar::UInt(u32::MAX.into()),
        DType::U64 => Scalar::UInt(u64::MAX),
        _ => Scalar::Int(-1),
    }
}
