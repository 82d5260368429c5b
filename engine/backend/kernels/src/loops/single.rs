//! Instructions for single elements, the majority in scalar loops: they consist of the function only.

use super::{Binary, Block, Comparison, Instruction, Kind, Memory, Place, Unary};

/// Lists the functions of two elements of each type.
macro_rules! singles {
    ($($name:ident: $from:ident $to:ident |$a:ident, $b:ident| $f:expr;)*) => {
        /// A function of one or two elements, for one type.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Single {
            $($name,)*
        }

        impl Single {
            /// Computes element `y` from elements `a` and `b`. `y` may be one of them.
            #[inline(always)]
            pub(super) fn run(self, memory: &mut Memory, [a, b]: [u32; 2], y: u32) {
                match self {
                    $(Self::$name => {
                        let ($a, $b) = (memory.$from[a as usize], memory.$from[b as usize]);
                        memory.$to[y as usize] = $f;
                    })*
                }
            }
        }
    };
}

singles! {
    AddF32: f32s f32s |a, b| a + b;
    SubF32: f32s f32s |a, b| a - b;
    MulF32: f32s f32s |a, b| a * b;
    DivF32: f32s f32s |a, b| a / b;
    AddF64: f64s f64s |a, b| a + b;
    SubF64: f64s f64s |a, b| a - b;
    MulF64: f64s f64s |a, b| a * b;
    DivF64: f64s f64s |a, b| a / b;
    AddI32: i32s i32s |a, b| a.wrapping_add(b);
    SubI32: i32s i32s |a, b| a.wrapping_sub(b);
    MulI32: i32s i32s |a, b| a.wrapping_mul(b);
    AddI64: i64s i64s |a, b| a.wrapping_add(b);
    SubI64: i64s i64s |a, b| a.wrapping_sub(b);
    MulI64: i64s i64s |a, b| a.wrapping_mul(b);
    And: bools bools |a, b| a & b;
    Or: bools bools |a, b| a | b;
    Not: bools bools |a, _b| !a;
    EqF32: f32s bools |a, b| a == b;
    GtF32: f32s bools |a, b| a > b;
    GeF32: f32s bools |a, b| a >= b;
    LtF32: f32s bools |a, b| a < b;
    LeF32: f32s bools |a, b| a <= b;
    EqF64: f64s bools |a, b| a == b;
    GtF64: f64s bools |a, b| a > b;
    GeF64: f64s bools |a, b| a >= b;
    LtF64: f64s bools |a, b| a < b;
    LeF64: f64s bools |a, b| a <= b;
    EqI32: i32s bools |a, b| a == b;
    GtI32: i32s bools |a, b| a > b;
    GeI32: i32s bools |a, b| a >= b;
    LtI32: i32s bools |a, b| a < b;
    LeI32: i32s bools |a, b| a <= b;
    EqI64: i64s bools |a, b| a == b;
    GtI64: i64s bools |a, b| a > b;
    GeI64: i64s bools |a, b| a >= b;
    LtI64: i64s bools |a, b| a < b;
    LeI64: i64s bools |a, b| a <= b;
    CopyF32: f32s f32s |a, _b| a;
    CopyF64: f64s f64s |a, _b| a;
    CopyI32: i32s i32s |a, _b| a;
    CopyI64: i64s i64s |a, _b| a;
    CopyBool: bools bools |a, _b| a;
}

impl Single {
    /// Returns the function, operands and result of an instruction, if all of them have one element.
    fn of(instruction: &Instruction) -> Option<(Self, [Place; 2], Place)> {
        let (single, operands, y) = match *instruction {
            Instruction::Binary(op, operands, y) => (Self::binary(op, y.kind)?, operands, y),
            Instruction::Compare(op, operands, y) => (Self::compare(op, operands[0].kind)?, operands, y),
            Instruction::Unary(Unary::Not, x, y) if y.kind == Kind::Bool => (Self::Not, [x, x], y),
            Instruction::Copy(x, y) => {
                let copy = match x.kind {
                    Kind::F32 => Self::CopyF32,
                    Kind::F64 => Self::CopyF64,
                    Kind::I32 => Self::CopyI32,
                    Kind::I64 => Self::CopyI64,
                    Kind::Bool => Self::CopyBool,
                };
                (copy, [x, x], y)
            }
            _ => return None,
        };
        let single_elements =
            operands.iter().chain([&y]).all(|place| place.len == 1 && place.start <= u32::MAX as usize);
        single_elements.then_some((single, operands, y))
    }

    fn binary(op: Binary, kind: Kind) -> Option<Self> {
        Some(match (op, kind) {
            (Binary::Add, Kind::F32) => Self::AddF32,
            (Binary::Sub, Kind::F32) => Self::SubF32,
            (Binary::Mul, Kind::F32) => Self::MulF32,
            (Binary::Div, Kind::F32) => Self::DivF32,
            (Binary::Add, Kind::F64) => Self::AddF64,
            (Binary::Sub, Kind::F64) => Self::SubF64,
            (Binary::Mul, Kind::F64) => Self::MulF64,
            (Binary::Div, Kind::F64) => Self::DivF64,
            (Binary::Add, Kind::I32) => Self::AddI32,
            (Binary::Sub, Kind::I32) => Self::SubI32,
            (Binary::Mul, Kind::I32) => Self::MulI32,
            (Binary::Add, Kind::I64) => Self::AddI64,
            (Binary::Sub, Kind::I64) => Self::SubI64,
            (Binary::Mul, Kind::I64) => Self::MulI64,
            (Binary::And, Kind::Bool) => Self::And,
            (Binary::Or, Kind::Bool) => Self::Or,
            _ => return None,
        })
    }

    fn compare(op: Comparison, kind: Kind) -> Option<Self> {
        Some(match (op, kind) {
            (Comparison::Eq, Kind::F32) => Self::EqF32,
            (Comparison::Gt, Kind::F32) => Self::GtF32,
            (Comparison::Ge, Kind::F32) => Self::GeF32,
            (Comparison::Lt, Kind::F32) => Self::LtF32,
            (Comparison::Le, Kind::F32) => Self::LeF32,
            (Comparison::Eq, Kind::F64) => Self::EqF64,
            (Comparison::Gt, Kind::F64) => Self::GtF64,
            (Comparison::Ge, Kind::F64) => Self::GeF64,
            (Comparison::Lt, Kind::F64) => Self::LtF64,
            (Comparison::Le, Kind::F64) => Self::LeF64,
            (Comparison::Eq, Kind::I32) => Self::EqI32,
            (Comparison::Gt, Kind::I32) => Self::GtI32,
            (Comparison::Ge, Kind::I32) => Self::GeI32,
            (Comparison::Lt, Kind::I32) => Self::LtI32,
            (Comparison::Le, Kind::I32) => Self::LeI32,
            (Comparison::Eq, Kind::I64) => Self::EqI64,
            (Comparison::Gt, Kind::I64) => Self::GtI64,
            (Comparison::Ge, Kind::I64) => Self::GeI64,
            (Comparison::Lt, Kind::I64) => Self::LtI64,
            (Comparison::Le, Kind::I64) => Self::LeI64,
            (_, Kind::Bool) => return None,
        })
    }
}

/// Returns the places that an instruction reads; `None` if it has blocks or calls.
fn reads(instruction: &Instruction) -> Option<Vec<Place>> {
    Some(match instruction {
        Instruction::Unary(_, x, _)
        | Instruction::IsNan(x, _)
        | Instruction::IsInf(x, _)
        | Instruction::Clamp(_, x, _)
        | Instruction::Convert(x, _)
        | Instruction::Sums(_, x, _)
        | Instruction::Sum(_, x, _)
        | Instruction::Copy(x, _)
        | Instruction::Gather(_, x, _) => vec![*x],
        // Elements that a scatter does not write are retained, so the result is also read.
        Instruction::Scatter(_, x, y) => vec![*x, *y],
        Instruction::Binary(_, operands, _) | Instruction::Compare(_, operands, _) => operands.to_vec(),
        Instruction::Select(mask, [yes, no], _) => vec![*mask, *yes, *no],
        Instruction::Chain(_, operands, _) => operands.to_vec(),
        _ => return None,
    })
}

/// Makes functions whose results are only moved to the carry write to the carry directly. The block ends with the moves.
fn without_moves(mut block: Block) -> Block {
    let Some(mut all) = block.iter().map(reads).collect::<Option<Vec<_>>>() else { return block };
    let mut at = block.len();
    while let Some(Instruction::Copy(result, carry)) = at.checked_sub(1).map(|last| &block[last]) {
        at -= 1;
        let (result, carry) = (*result, *carry);
        let made = block[..at].iter().position(|instruction| {
            Single::of(instruction).is_some_and(|(_, _, y)| y == result)
                && !matches!(instruction, Instruction::Copy(..))
        });
        let Some(made) = made else { continue };
        let reads_result = |(i, places): (usize, &Vec<Place>)| i != at && places.iter().any(|x| x.overlaps(result));
        let reads_carry = |places: &Vec<Place>| places.iter().any(|x| x.overlaps(carry));
        let others_read = all.iter().enumerate().any(reads_result) || all[made + 1..].iter().any(reads_carry);
        if carry.len != 1 || others_read {
            continue;
        }
        match &mut block[made] {
            Instruction::Binary(_, _, y) | Instruction::Compare(_, _, y) | Instruction::Unary(_, _, y) => *y = carry,
            _ => continue,
        }
        block.remove(at);
        all.remove(at);
    }
    block
}

/// Returns the block with single-element instructions, and loops in executable form.
pub(super) fn with_singles(block: Block) -> Block {
    let single = |instruction: Instruction| match Single::of(&instruction) {
        Some((single, [a, b], y)) => Instruction::Single(single, [a.start as u32, b.start as u32], y.start as u32),
        None => match instruction {
            Instruction::While { condition, holds, body } => {
                let (first, mut then) = (with_singles(condition), with_singles(without_moves(body)));
                then.extend(first.iter().cloned());
                Instruction::Repeat { first, holds, then }
            }
            Instruction::Scan { length, reverse, read, body, write, then } => {
                Instruction::Scan { length, reverse, read, body: with_singles(body), write, then: with_singles(then) }
            }
            Instruction::Switch(index, blocks) => {
                Instruction::Switch(index, blocks.into_iter().map(with_singles).collect())
            }
            other => other,
        },
    };
    block.into_iter().map(single).collect()
}
