//! Several functions in one loop over a tile. The results are bitwise those of a loop per function.

use std::mem::MaybeUninit;

use super::{Map, Pair, functions::zip};
use crate::{
    dispatch::vectorized,
    gelu::{gelu_erf_of, gelu_tanh_of},
    math::{erf, exp, tanh},
    selu::selu_of,
};

/// A function of two elements that is a single instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arithmetic {
    Add,
    Sub,
    /// The second operand minus the first.
    From,
    Mul,
}

impl Arithmetic {
    pub fn of(pair: Pair) -> Option<Self> {
        match pair {
            Pair::Add => Some(Self::Add),
            Pair::Sub => Some(Self::Sub),
            Pair::Mul => Some(Self::Mul),
            _ => None,
        }
    }

    /// Returns the function with its operands exchanged.
    pub fn swapped(self) -> Self {
        match self {
            Self::Sub => Self::From,
            Self::From => Self::Sub,
            other => other,
        }
    }
}

/// The second operand of a function.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operand<'a> {
    Tile(&'a [f32]),
    Number(f32),
}

#[inline(always)]
fn zip_3(a: &[f32], b: &[f32], c: &[f32], y: &mut [MaybeUninit<f32>], f: impl Fn(f32, f32, f32) -> f32) {
    for (((&a, &b), &c), y) in a.iter().zip(b).zip(c).zip(y) {
        y.write(f(a, b, c));
    }
}

/// Evaluates an expression with the closure of an operation.
macro_rules! with {
    ($op:expr, $f:ident => $run:expr) => {
        match $op {
            Arithmetic::Add => {
                let $f = |a: f32, b: f32| a + b;
                $run
            }
            Arithmetic::Sub => {
                let $f = |a: f32, b: f32| a - b;
                $run
            }
            Arithmetic::From => {
                let $f = |a: f32, b: f32| b - a;
                $run
            }
            Arithmetic::Mul => {
                let $f = |a: f32, b: f32| a * b;
                $run
            }
        }
    };
}

vectorized! {
    fn apply_two<FUSED>(
        first: Arithmetic, a: &[f32], b: Operand<'_>, second: Arithmetic, c: Operand<'_>, y: &mut [MaybeUninit<f32>],
    ) {
        with!(first, f => with!(second, g => match (b, c) {
            (Operand::Tile(b), Operand::Tile(c)) => zip_3(a, b, c, y, |a, b, c| g(f(a, b), c)),
            (Operand::Tile(b), Operand::Number(c)) => zip(a, b, y, |a, b| g(f(a, b), c)),
            (Operand::Number(b), Operand::Tile(c)) => zip(a, c, y, |a, c| g(f(a, b), c)),
            (Operand::Number(b), Operand::Number(c)) => super::functions::map(a, y, |a| g(f(a, b), c)),
        }));
    }
}

/// Evaluates an expression with a [long](Map::is_long) function.
macro_rules! long {
    ($map:expr, $f:ident => $run:expr) => {
        long!($map, $f => $run; Exp exp, Erf erf, Tanh tanh, GeluErf gelu_erf_of, GeluTanh gelu_tanh_of, Selu selu_of)
    };
    ($map:expr, $f:ident => $run:expr; $($name:ident $function:ident),*) => {
        match $map {
            $(Map::$name => {
                let $f = $function::<FUSED>;
                $run
            })*
            map => unreachable!("{map:?} has passes of its own"),
        }
    };
}

vectorized! {
    fn apply_map_two<FUSED>(map: Map, x: &[f32], second: Arithmetic, c: &[f32], y: &mut [MaybeUninit<f32>]) {
        with!(second, g => long!(map, f => zip(x, c, y, |x, c| g(f(x), c))));
    }
}

vectorized! {
    /// A function of `a b + c`, optionally followed by a function of the result and `d`.
    fn apply_affine_map<FUSED>(
        affine: [&[f32]; 3], map: Map, second: Option<(Arithmetic, &[f32])>, y: &mut [MaybeUninit<f32>],
    ) {
        let [a, b, c] = affine;
        match second {
            None => long!(map, f => zip_3(a, b, c, y, |a, b, c| f(a * b + c))),
            Some((second, d)) => with!(second, g => long!(map, f => {
                for ((((&a, &b), &c), &d), y) in a.iter().zip(b).zip(c).zip(d).zip(y) {
                    y.write(g(f(a * b + c), d));
                }
            })),
        }
    }
}
