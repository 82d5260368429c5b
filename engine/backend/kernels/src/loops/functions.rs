//! Elementwise functions. They compute bitwise the same results as Burn's flex backend.

use super::{Binary, Bounds, Comparison, Element, Memory, Place, Unary};

/// `y = f(x)`.
#[inline(always)]
fn map<T: Copy, R>(x: &[T], y: &mut [R], f: impl Fn(T) -> R) {
    for (&x, y) in x.iter().zip(y) {
        *y = f(x);
    }
}

/// `y = f(a, b)`; an operand with one element is broadcast.
#[inline(always)]
fn zip<T: Copy, R>(a: &[T], b: &[T], y: &mut [R], f: impl Fn(T, T) -> R) {
    match (a, b) {
        ([a], [b]) => y.iter_mut().for_each(|y| *y = f(*a, *b)),
        ([a], b) => map(b, y, |b| f(*a, b)),
        (a, [b]) => map(a, y, |a| f(a, *b)),
        (a, b) => {
            for ((&a, &b), y) in a.iter().zip(b).zip(y) {
                *y = f(a, b);
            }
        }
    }
}

#[inline(always)]
fn map_in<T: Element>(memory: &mut Memory, x: Place, y: Place, f: impl Fn(T) -> T) {
    let (before, y) = memory.split(y);
    map(&before[x.range()], y, f);
}

#[inline(always)]
fn zip_in<T: Element>(memory: &mut Memory, [a, b]: [Place; 2], y: Place, f: impl Fn(T, T) -> T) {
    let (before, y) = memory.split(y);
    zip(&before[a.range()], &before[b.range()], y, f);
}

fn undefined(op: impl std::fmt::Debug) -> ! {
    unreachable!("{op:?} is not defined for the type")
}

macro_rules! floats {
    ($type:ident, $unary:ident, $binary:ident, $clamp:ident) => {
        pub(super) fn $unary(memory: &mut Memory, op: Unary, x: Place, y: Place) {
            /// Rounds to the nearest integer, and ties to even.
            fn round(x: $type) -> $type {
                let rounded = x.round();
                if (x - rounded).abs() == 0.5 && rounded as i64 % 2 != 0 { rounded - x.signum() } else { rounded }
            }
            fn sigmoid(x: $type) -> $type {
                if x >= 0.0 {
                    1.0 / (1.0 + (-x).exp())
                } else {
                    let e = x.exp();
                    e / (1.0 + e)
                }
            }
            match op {
                Unary::Abs => map_in(memory, x, y, $type::abs),
                Unary::Exp => map_in(memory, x, y, $type::exp),
                Unary::Log => map_in(memory, x, y, $type::ln),
                Unary::Log1p => map_in(memory, x, y, $type::ln_1p),
                Unary::Sqrt => map_in(memory, x, y, $type::sqrt),
                Unary::Recip => map_in(memory, x, y, |x: $type| 1.0 / x),
                Unary::Sin => map_in(memory, x, y, $type::sin),
                Unary::Cos => map_in(memory, x, y, $type::cos),
                Unary::Tan => map_in(memory, x, y, $type::tan),
                Unary::Sinh => map_in(memory, x, y, $type::sinh),
                Unary::Cosh => map_in(memory, x, y, $type::cosh),
                Unary::Tanh => map_in(memory, x, y, $type::tanh),
                Unary::Asin => map_in(memory, x, y, $type::asin),
                Unary::Acos => map_in(memory, x, y, $type::acos),
                Unary::Atan => map_in(memory, x, y, $type::atan),
                Unary::Asinh => map_in(memory, x, y, $type::asinh),
                Unary::Acosh => map_in(memory, x, y, $type::acosh),
                Unary::Atanh => map_in(memory, x, y, $type::atanh),
                Unary::Sigmoid => map_in(memory, x, y, sigmoid),
                Unary::Round => map_in(memory, x, y, round),
                Unary::Floor => map_in(memory, x, y, $type::floor),
                Unary::Ceil => map_in(memory, x, y, $type::ceil),
                Unary::Trunc => map_in(memory, x, y, $type::trunc),
                Unary::Not => undefined(op),
            }
        }

        pub(super) fn $binary(memory: &mut Memory, op: Binary, operands: [Place; 2], y: Place) {
            match op {
                Binary::Add => zip_in(memory, operands, y, |a: $type, b| a + b),
                Binary::Sub => zip_in(memory, operands, y, |a: $type, b| a - b),
                Binary::Mul => zip_in(memory, operands, y, |a: $type, b| a * b),
                Binary::Div => zip_in(memory, operands, y, |a: $type, b| a / b),
                Binary::Rem => zip_in(memory, operands, y, |a: $type, b| ((a % b) + b) % b),
                Binary::Pow => zip_in(memory, operands, y, $type::powf),
                Binary::Atan2 => zip_in(memory, operands, y, $type::atan2),
                op => undefined(op),
            }
        }

        /// Panics if the minimum exceeds the maximum.
        pub(super) fn $clamp(memory: &mut Memory, bounds: Bounds, x: Place, y: Place) {
            let Bounds::Float(min, max) = bounds else { undefined(bounds) };
            let (min, max) = (min as $type, max as $type);
            map_in(memory, x, y, |x: $type| x.clamp(min, max));
        }
    };
}

floats!(f32, unary_f32, binary_f32, clamp_f32);
floats!(f64, unary_f64, binary_f64, clamp_f64);

/// An integer type whose arithmetic is done in 64 bits.
pub(super) trait Int: Element {
    fn wide(self) -> i64;
    /// Truncates to the low bits.
    fn narrow(x: i64) -> Self;
}

impl Int for i32 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self.into()
    }

    #[inline(always)]
    fn narrow(x: i64) -> Self {
        x as Self
    }
}

impl Int for i64 {
    #[inline(always)]
    fn wide(self) -> i64 {
        self
    }

    #[inline(always)]
    fn narrow(x: i64) -> Self {
        x
    }
}

pub(super) fn unary_int<T: Int>(memory: &mut Memory, op: Unary, x: Place, y: Place) {
    match op {
        Unary::Abs => map_in(memory, x, y, |x: T| T::narrow(x.wide().wrapping_abs())),
        Unary::Not => map_in(memory, x, y, |x: T| T::narrow(!x.wide())),
        op => undefined(op),
    }
}

pub(super) fn binary_int<T: Int>(memory: &mut Memory, op: Binary, operands: [Place; 2], y: Place) {
    #[inline(always)]
    fn wide<T: Int>(memory: &mut Memory, operands: [Place; 2], y: Place, f: impl Fn(i64, i64) -> i64) {
        zip_in(memory, operands, y, |a: T, b: T| T::narrow(f(a.wide(), b.wide())));
    }
    match op {
        Binary::Add => wide::<T>(memory, operands, y, i64::wrapping_add),
        Binary::Sub => wide::<T>(memory, operands, y, i64::wrapping_sub),
        Binary::Mul => wide::<T>(memory, operands, y, i64::wrapping_mul),
        // Division by 0 gives the quotient -1 and the remainder 0, as in JAX.
        Binary::Div => wide::<T>(memory, operands, y, |a, b| if b == 0 { -1 } else { a.wrapping_div(b) }),
        Binary::Rem => wide::<T>(memory, operands, y, |a, b| {
            let rest = if b == 0 { 0 } else { a.wrapping_rem(b) };
            if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
        }),
        Binary::Pow => wide::<T>(memory, operands, y, |a, b| a.wrapping_pow(b as u32)),
        Binary::And => wide::<T>(memory, operands, y, |a, b| a & b),
        Binary::Or => wide::<T>(memory, operands, y, |a, b| a | b),
        Binary::Xor => wide::<T>(memory, operands, y, |a, b| a ^ b),
        Binary::ShiftLeft => wide::<T>(memory, operands, y, |a, b| a.wrapping_shl(b as u32)),
        Binary::ShiftRight => wide::<T>(memory, operands, y, |a, b| a.wrapping_shr(b as u32)),
        Binary::Atan2 => undefined(op),
    }
}

pub(super) fn unary_bool(memory: &mut Memory, op: Unary, x: Place, y: Place) {
    match op {
        Unary::Not => map_in(memory, x, y, |x: bool| !x),
        op => undefined(op),
    }
}

pub(super) fn binary_bool(memory: &mut Memory, op: Binary, operands: [Place; 2], y: Place) {
    match op {
        Binary::And => zip_in(memory, operands, y, |a: bool, b| a & b),
        Binary::Or => zip_in(memory, operands, y, |a: bool, b| a | b),
        op => undefined(op),
    }
}

pub(super) fn compare<T: Copy + PartialOrd>(op: Comparison, a: &[T], b: &[T], y: &mut [bool]) {
    match op {
        Comparison::Eq => zip(a, b, y, |a, b| a == b),
        Comparison::Gt => zip(a, b, y, |a, b| a > b),
        Comparison::Ge => zip(a, b, y, |a, b| a >= b),
        Comparison::Lt => zip(a, b, y, |a, b| a < b),
        Comparison::Le => zip(a, b, y, |a, b| a <= b),
    }
}

pub(super) fn compare_bools(memory: &mut Memory, op: Comparison, operands: [Place; 2], y: Place) {
    match op {
        Comparison::Eq => zip_in(memory, operands, y, |a: bool, b| a == b),
        op => undefined(op),
    }
}

/// Panics if the minimum exceeds the maximum.
pub(super) fn clamp_int<T: Int>(memory: &mut Memory, bounds: Bounds, x: Place, y: Place) {
    let Bounds::Int(min, max) = bounds else { undefined(bounds) };
    map_in(memory, x, y, |x: T| T::narrow(x.wide().clamp(min, max)));
}

/// `y = yes` if the mask is true, else `no`.
#[inline(always)]
pub(super) fn select<T: Copy>(mask: &[bool], yes: &[T], no: &[T], y: &mut [T]) {
    let at = |x: &[T], i: usize| if x.len() == 1 { x[0] } else { x[i] };
    for (i, y) in y.iter_mut().enumerate() {
        *y = if mask[if mask.len() == 1 { 0 } else { i }] { at(yes, i) } else { at(no, i) };
    }
}

/// Converts elements to another type, as Burn does: floating-point values to integers through f64, truncated and clamped to
/// the range, and NaN to 0.
pub(super) fn convert(memory: &mut Memory, x: Place, y: Place) {
    use super::Kind::{Bool, F32, F64, I32, I64};
    macro_rules! between {
        ($from:ident, $to:ident, $f:expr) => {
            map(&memory.$from[x.range()], &mut memory.$to[y.range()], $f)
        };
    }
    match (x.kind, y.kind) {
        (F32, F64) => between!(f32s, f64s, f64::from),
        (F32, I32) => between!(f32s, i32s, |x| f64::from(x) as i32),
        (F32, I64) => between!(f32s, i64s, |x| f64::from(x) as i64),
        (F64, F32) => between!(f64s, f32s, |x| x as f32),
        (F64, I32) => between!(f64s, i32s, |x| x as i32),
        (F64, I64) => between!(f64s, i64s, |x| x as i64),
        (I32, F32) => between!(i32s, f32s, |x| x as f32),
        (I32, F64) => between!(i32s, f64s, f64::from),
        (I32, I64) => between!(i32s, i64s, i64::from),
        (I64, F32) => between!(i64s, f32s, |x| x as f32),
        (I64, F64) => between!(i64s, f64s, |x| x as f64),
        (I64, I32) => between!(i64s, i32s, |x| x as i32),
        (Bool, F32) => between!(bools, f32s, |x| f32::from(u8::from(x))),
        (Bool, F64) => between!(bools, f64s, |x| f64::from(u8::from(x))),
        (Bool, I32) => between!(bools, i32s, i32::from),
        (Bool, I64) => between!(bools, i64s, i64::from),
        kinds => undefined(kinds),
    }
}
