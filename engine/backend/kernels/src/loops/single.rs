//! Instructions for single elements, the majority in scalar loops: they consist of the function only.

use super::{Binary, Block, Comparison, Instruction, Kind, Memory, Place, Unary};

/// Lists the functions of each type: those of [`Binary`], those of [`Comparison`], and those of one element.
macro_rules! singles {
    (
        binary { $($binary:ident: $op:ident $kind:ident $field:ident |$a:ident, $b:ident| $f:expr;)* }
        compare { $($compare:ident: $comparison:ident $of:ident $from:ident |$c:ident, $d:ident| $g:expr;)* }
        unary { $($unary:ident: $all:ident |$x:ident| $h:expr;)* }
    ) => {
        /// A function of one or two elements, for one type.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Single {
            $($binary,)*
            $($compare,)*
            $($unary,)*
        }

        impl Single {
            /// Computes element `y` from elements `a` and `b`. `y` may be one of them.
            #[inline(always)]
            pub(super) fn run(self, memory: &mut Memory, [a, b]: [u32; 2], y: u32) {
                let [a, b, y] = [a, b, y].map(|at| at as usize);
                match self {
                    $(Self::$binary => {
                        let ($a, $b) = (memory.$field[a], memory.$field[b]);
                        memory.$field[y] = $f;
                    })*
                    $(Self::$compare => {
                        let ($c, $d) = (memory.$from[a], memory.$from[b]);
                        memory.bools[y] = $g;
                    })*
                    $(Self::$unary => {
                        let $x = memory.$all[a];
                        memory.$all[y] = $h;
                    })*
                }
            }

            fn binary(op: Binary, kind: Kind) -> Option<Self> {
                match (op, kind) {
                    $((Binary::$op, Kind::$kind) => Some(Self::$binary),)*
                    _ => None,
                }
            }

            fn compare(op: Comparison, kind: Kind) -> Option<Self> {
                match (op, kind) {
                    $((Comparison::$comparison, Kind::$of) => Some(Self::$compare),)*
                    (_, Kind::Bool) => None,
                }
            }
        }
    };
}

singles! {
    binary {
        AddF32: Add F32 f32s |a, b| a + b;
        SubF32: Sub F32 f32s |a, b| a - b;
        MulF32: Mul F32 f32s |a, b| a * b;
        DivF32: Div F32 f32s |a, b| a / b;
        AddF64: Add F64 f64s |a, b| a + b;
        SubF64: Sub F64 f64s |a, b| a - b;
        MulF64: Mul F64 f64s |a, b| a * b;
        DivF64: Div F64 f64s |a, b| a / b;
        AddI32: Add I32 i32s |a, b| a.wrapping_add(b);
        SubI32: Sub I32 i32s |a, b| a.wrapping_sub(b);
        MulI32: Mul I32 i32s |a, b| a.wrapping_mul(b);
        AddI64: Add I64 i64s |a, b| a.wrapping_add(b);
        SubI64: Sub I64 i64s |a, b| a.wrapping_sub(b);
        MulI64: Mul I64 i64s |a, b| a.wrapping_mul(b);
        And: And Bool bools |a, b| a & b;
        Or: Or Bool bools |a, b| a | b;
    }
    compare {
        EqF32: Eq F32 f32s |a, b| a == b;
        GtF32: Gt F32 f32s |a, b| a > b;
        GeF32: Ge F32 f32s |a, b| a >= b;
        LtF32: Lt F32 f32s |a, b| a < b;
        LeF32: Le F32 f32s |a, b| a <= b;
        EqF64: Eq F64 f64s |a, b| a == b;
        GtF64: Gt F64 f64s |a, b| a > b;
        GeF64: Ge F64 f64s |a, b| a >= b;
        LtF64: Lt F64 f64s |a, b| a < b;
        LeF64: Le F64 f64s |a, b| a <= b;
        EqI32: Eq I32 i32s |a, b| a == b;
        GtI32: Gt I32 i32s |a, b| a > b;
        GeI32: Ge I32 i32s |a, b| a >= b;
        LtI32: Lt I32 i32s |a, b| a < b;
        LeI32: Le I32 i32s |a, b| a <= b;
        EqI64: Eq I64 i64s |a, b| a == b;
        GtI64: Gt I64 i64s |a, b| a > b;
        GeI64: Ge I64 i64s |a, b| a >= b;
        LtI64: Lt I64 i64s |a, b| a < b;
        LeI64: Le I64 i64s |a, b| a <= b;
    }
    unary {
        Not: bools |x| !x;
        CopyF32: f32s |x| x;
        CopyF64: f64s |x| x;
        CopyI32: i32s |x| x;
        CopyI64: i64s |x| x;
        CopyBool: bools |x| x;
    }
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
