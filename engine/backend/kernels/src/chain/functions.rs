//! Elementwise functions over a tile.

use std::mem::MaybeUninit;

use crate::{
    dispatch::vectorized,
    gelu::{gelu_erf_of, gelu_tanh_of},
    math::{self, erf, exp, tanh},
    selu::selu_of,
};

/// A function of one element. Booleans are 1 and 0.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Map {
    Copy,
    Abs,
    Exp,
    Log,
    Log1p,
    Sqrt,
    Recip,
    Erf,
    Sin,
    Cos,
    Tanh,
    Floor,
    Ceil,
    Trunc,
    Not,
    IsNan,
    GeluErf,
    GeluTanh,
    Selu,
}

/// A function of two elements.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    Add,
    Sub,
    Mul,
    Div,
    Pow,
    And,
    Or,
    Eq,
    Gt,
    Ge,
    Lt,
    Le,
}

#[inline(always)]
pub(super) fn map(x: &[f32], y: &mut [MaybeUninit<f32>], f: impl Fn(f32) -> f32) {
    for (&x, y) in x.iter().zip(y) {
        y.write(f(x));
    }
}

#[inline(always)]
pub(super) fn zip(a: &[f32], b: &[f32], y: &mut [MaybeUninit<f32>], f: impl Fn(f32, f32) -> f32) {
    for ((&a, &b), y) in a.iter().zip(b).zip(y) {
        y.write(f(a, b));
    }
}

/// Converts a boolean to a number.
#[inline(always)]
fn truth(condition: bool) -> f32 {
    f32::from(u8::from(condition))
}

/// Selects `a` if the mask is true, else `b`, by bits: a branch would prevent vectorisation without AVX-512.
#[inline(always)]
fn choice(mask: f32, a: f32, b: f32) -> f32 {
    let all = 0_u32.wrapping_sub(u32::from(mask > 0.0));
    f32::from_bits(a.to_bits() & all | b.to_bits() & !all)
}

vectorized! {
    fn apply_map<FUSED>(op: Map, x: &[f32], y: &mut [MaybeUninit<f32>]) {
        match op {
            Map::Copy => map(x, y, |x| x),
            Map::Abs => map(x, y, f32::abs),
            Map::Exp => map(x, y, exp::<FUSED>),
            Map::Log => map(x, y, f32::ln),
            Map::Log1p => map(x, y, f32::ln_1p),
            Map::Sqrt => map(x, y, f32::sqrt),
            Map::Recip => map(x, y, f32::recip),
            Map::Erf => map(x, y, erf::<FUSED>),
            Map::Sin => map(x, y, f32::sin),
            Map::Cos => map(x, y, f32::cos),
            Map::Tanh => map(x, y, tanh::<FUSED>),
            Map::Floor => map(x, y, f32::floor),
            Map::Ceil => map(x, y, f32::ceil),
            Map::Trunc => map(x, y, f32::trunc),
            Map::Not => map(x, y, |x| 1.0 - x),
            Map::IsNan => map(x, y, |x| truth(x.is_nan())),
            Map::GeluErf => map(x, y, gelu_erf_of::<FUSED>),
            Map::GeluTanh => map(x, y, gelu_tanh_of::<FUSED>),
            Map::Selu => map(x, y, selu_of::<FUSED>),
        }
    }
}

vectorized! {
    fn apply_pair<FUSED>(op: Pair, a: &[f32], b: &[f32], y: &mut [MaybeUninit<f32>]) {
        match op {
            Pair::Add => zip(a, b, y, |a, b| a + b),
            Pair::Sub => zip(a, b, y, |a, b| a - b),
            Pair::Mul => zip(a, b, y, |a, b| a * b),
            Pair::Div => zip(a, b, y, |a, b| a / b),
            Pair::Pow => zip(a, b, y, f32::powf),
            Pair::And => zip(a, b, y, |a, b| a * b),
            Pair::Or => zip(a, b, y, |a, b| truth(a + b > 0.0)),
            Pair::Eq => zip(a, b, y, |a, b| truth(a == b)),
            Pair::Gt => zip(a, b, y, |a, b| truth(a > b)),
            Pair::Ge => zip(a, b, y, |a, b| truth(a >= b)),
            Pair::Lt => zip(a, b, y, |a, b| truth(a < b)),
            Pair::Le => zip(a, b, y, |a, b| truth(a <= b)),
        }
    }
}

vectorized! {
    fn apply_number<FUSED>(op: Pair, x: &[f32], number: f32, y: &mut [MaybeUninit<f32>]) {
        match op {
            Pair::Add => map(x, y, |x| x + number),
            Pair::Sub => map(x, y, |x| x - number),
            Pair::Mul => map(x, y, |x| x * number),
            Pair::Div => map(x, y, |x| x / number),
            Pair::Pow => map(x, y, |x| x.powf(number)),
            Pair::And => map(x, y, |x| x * number),
            Pair::Or => map(x, y, |x| truth(x + number > 0.0)),
            Pair::Eq => map(x, y, |x| truth(x == number)),
            Pair::Gt => map(x, y, |x| truth(x > number)),
            Pair::Ge => map(x, y, |x| truth(x >= number)),
            Pair::Lt => map(x, y, |x| truth(x < number)),
            Pair::Le => map(x, y, |x| truth(x <= number)),
        }
    }
}

vectorized! {
    fn apply_power<FUSED>(x: &[f32], exponent: i32, y: &mut [MaybeUninit<f32>]) {
        match exponent {
            2 => map(x, y, |x| x * x),
            3 => map(x, y, |x| x * x * x),
            _ => map(x, y, |x| x.powi(exponent)),
        }
    }
}

vectorized! {
    fn apply_clamp<FUSED>(x: &[f32], min: f32, max: f32, y: &mut [MaybeUninit<f32>]) {
        map(x, y, |x| {
            // The comparisons are false for NaN, so that NaN propagates.
            let x = if x < min { min } else { x };
            if x > max { max } else { x }
        });
    }
}

vectorized! {
    fn apply_select<FUSED>(mask: &[f32], a: &[f32], b: &[f32], y: &mut [MaybeUninit<f32>]) {
        for (((&mask, &a), &b), y) in mask.iter().zip(a).zip(b).zip(y) {
            y.write(choice(mask, a, b));
        }
    }
}

vectorized! {
    fn apply_fill<FUSED>(mask: &[f32], x: &[f32], number: f32, y: &mut [MaybeUninit<f32>]) {
        zip(mask, x, y, |mask, x| choice(mask, number, x));
    }
}

vectorized! {
    fn sum<FUSED>(x: &[f32]) -> f32 {
        math::sum(x, |x| x)
    }
}
