//! Loops over small arrays: lists of instructions over one memory that is allocated once.
//!
//! An operation on tensors allocates memory, makes a handle and dispatches, which takes longer than its work on a few elements. Here
//! each value of a loop's body has a [`Place`] in a [`Memory`], and an [`Instruction`] reads and writes places. The functions of
//! elements are those of the flex backend and of [chains](crate::chain), so that results are the same bit for bit.
//!
//! An instruction writes behind what it reads: places are given away in the order of the instructions. [`Instruction::Copy`] alone
//! writes anywhere, which is how a step's results become the carry of the next one. A loop's body ends with these moves.

mod functions;
mod memory;
mod run;
mod single;

pub use memory::{Element, Kind, Memory, Place, Sizes};
pub use run::Program;
pub use single::Single;

use crate::chain::Step;

/// A function of one element. [`Not`](Self::Not) is of integers and truth values, [`Abs`](Self::Abs) of numbers, and the others are
/// of floating-point numbers.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unary {
    Abs,
    Exp,
    Log,
    Log1p,
    Sqrt,
    Recip,
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
    Not,
}

/// A function of two elements of a type. [`And`](Self::And) and [`Or`](Self::Or) are of integers and truth values, [`Pow`](Self::Pow)
/// of numbers, [`Atan2`](Self::Atan2) of floating-point numbers, [`Xor`](Self::Xor) and shifts of integers.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Pow,
    Atan2,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

/// A comparison of two elements of a type. Truth values are only compared for equality.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Gt,
    Ge,
    Lt,
    Le,
}

/// The bounds of a clamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Of floating-point numbers.
    Float(f64, f64),
    /// Of integers.
    Int(i64, i64),
}

/// An array, and a row of it: the one for the step that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// The place of all rows.
    pub array: Place,
    /// The place of one row.
    pub row: Place,
}

/// An axis of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements along it.
    pub size: usize,
    /// Product of the sizes of the axes after it.
    pub inner: usize,
}

/// Most f32 elements that flex adds up in their order, whatever the CPU: more are added in vectors.
pub const IN_ORDER: usize = 3;

/// A list of instructions.
pub type Block = Vec<Instruction>;

/// A part of a program. Where an operand of a function has one element and the result has several, it belongs to each.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// A function of each element.
    Unary(Unary, Place, Place),
    /// A function of pairs of elements: operands and result.
    Binary(Binary, [Place; 2], Place),
    /// Truth values of pairs of elements.
    Compare(Comparison, [Place; 2], Place),
    /// True for NaN.
    IsNan(Place, Place),
    /// True for both infinities.
    IsInf(Place, Place),
    /// Elements kept between two numbers.
    Clamp(Bounds, Place, Place),
    /// For each truth value, the first place's element where it is true and the second one's elsewhere.
    Select(Place, [Place; 2], Place),
    /// Elements of another type.
    Convert(Place, Place),
    /// A step of a chain on f32 elements. Its operands are numbers of the places, which have as many elements as the result.
    Chain(Step, [Place; 3], Place),
    /// Sums over rows of f32 elements, divided by a number; as many as the result has elements.
    Sums(f32, Place, Place),
    /// Sums over an axis, one element after the other. Of f32, sums of all elements, of which there are up to [`IN_ORDER`].
    Sum(Axis, Place, Place),
    /// Slices at positions of an axis, which are integers of the second place.
    Take {
        /// The axis.
        axis: Axis,
        /// The array and the positions.
        operands: [Place; 2],
        /// The result.
        y: Place,
        /// The call that computes the result where a position is out of range.
        otherwise: usize,
    },
    /// The same elements. The result may be anywhere.
    Copy(Place, Place),
    /// Elements at positions of a place.
    Gather(Box<[u32]>, Place, Place),
    /// Elements written to positions of the result, whose others stay.
    Scatter(Box<[u32]>, Place, Place),
    /// A block while a truth value holds that another block computes.
    While {
        /// Computes the truth value.
        condition: Block,
        /// The place of the truth value.
        holds: Place,
        /// The step.
        body: Block,
    },
    /// A block for each row of some arrays.
    Scan {
        /// Number of steps.
        length: usize,
        /// True if the last row comes first.
        reverse: bool,
        /// Rows that are read before a step.
        read: Vec<Rows>,
        /// The step.
        body: Block,
        /// Rows that are written after a step.
        write: Vec<Rows>,
        /// Runs after that.
        then: Block,
    },
    /// One of several blocks, by a truth value or an index, which is clamped to the blocks that there are.
    Switch(Place, Vec<Block>),
    /// What the caller of [`Program::run`] does under this number.
    Call(usize),
    /// A block, and then another one as long as a truth value holds that both compute. A [`Program`] has it in place of
    /// [`While`](Self::While).
    Repeat {
        /// Computes the truth value.
        first: Block,
        /// The place of the truth value.
        holds: Place,
        /// The step, and the truth value after it.
        then: Block,
    },
    /// A function of the elements of these numbers. A [`Program`] has it in place of other instructions.
    Single(Single, [u32; 2], u32),
}
