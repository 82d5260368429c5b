//! Loops over small arrays: lists of instructions over one memory, which is allocated once.
//!
//! An operation on tensors allocates memory, creates a handle and dispatches, which takes longer than the computation on a
//! few elements. Here each value of a loop's body has a [`Place`] in a [`Memory`], and an [`Instruction`] reads and writes
//! places. The elementwise functions are those of the flex backend and of [chains](crate::chain), so that results are bitwise
//! the same.
//!
//! An instruction writes to a place after those that it reads, because places are allocated in the order of the instructions.
//! Only [`Instruction::Copy`] may write anywhere: it moves a step's results to the carry of the next one. A loop's body ends
//! with these moves.

mod functions;
mod memory;
mod run;
mod single;

pub use memory::{Element, Kind, Memory, Place, Sizes};
pub use run::Program;
pub use single::Single;

use crate::chain::Step;

/// A function of one element. [`Not`](Self::Not) is defined for integers and booleans, [`Abs`](Self::Abs) for integers and
/// floating-point values, and the others for floating-point values.
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

/// A function of two elements of one type. [`And`](Self::And) and [`Or`](Self::Or) are defined for integers and booleans,
/// [`Pow`](Self::Pow) for integers and floating-point values, [`Atan2`](Self::Atan2) for floating-point values,
/// [`Xor`](Self::Xor) and shifts for integers.
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

/// A comparison of two elements of one type. Booleans are only compared for equality.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Eq,
    Gt,
    Ge,
    Lt,
    Le,
}

/// Bounds of a clamp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bounds {
    /// Bounds of floating-point values.
    Float(f64, f64),
    /// Bounds of integers.
    Int(i64, i64),
}

/// An array and its row for the current step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Place of all rows.
    pub array: Place,
    /// Place of one row.
    pub row: Place,
}

/// An axis of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Number of elements along the axis.
    pub size: usize,
    /// Product of the sizes of the axes after it.
    pub inner: usize,
}

/// Maximum number of f32 elements that flex sums in order on every CPU; more are summed in vectors.
pub const IN_ORDER: usize = 3;

/// A list of instructions.
pub type Block = Vec<Instruction>;

/// An instruction of a program. If an operand has one element and the result has several, the operand is broadcast.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// Applies a function to each element.
    Unary(Unary, Place, Place),
    /// Applies a function to pairs of elements: operands and result.
    Binary(Binary, [Place; 2], Place),
    /// Compares pairs of elements, with boolean results.
    Compare(Comparison, [Place; 2], Place),
    /// Tests for NaN.
    IsNan(Place, Place),
    /// Tests for positive or negative infinity.
    IsInf(Place, Place),
    /// Clamps elements.
    Clamp(Bounds, Place, Place),
    /// Selects the element of the first operand if the mask (first place) is true, else that of the second.
    Select(Place, [Place; 2], Place),
    /// Converts elements to another type.
    Convert(Place, Place),
    /// Runs a step of a chain on f32 elements. Its operands are indices into the places, which have as many elements as the
    /// result.
    Chain(Step, [Place; 3], Place),
    /// Sums rows of f32 elements and divides by a constant. The result has one element per row.
    Sums(f32, Place, Place),
    /// Sums over an axis in order. For f32, only the sum of all elements, if there are at most [`IN_ORDER`].
    Sum(Axis, Place, Place),
    /// Selects slices of an axis by indices, which are the integers of the second place.
    Take {
        /// Axis.
        axis: Axis,
        /// Array and indices.
        operands: [Place; 2],
        /// Result.
        y: Place,
        /// Number of the call that computes the result if an index is out of range.
        otherwise: usize,
    },
    /// Copies elements. The result may be anywhere.
    Copy(Place, Place),
    /// Gathers elements at indices of a place.
    Gather(Box<[u32]>, Place, Place),
    /// Scatters elements to indices of the result. Other elements are unchanged.
    Scatter(Box<[u32]>, Place, Place),
    /// Runs a block while a boolean is true. Another block computes the boolean.
    While {
        /// Block that computes the boolean.
        condition: Block,
        /// Place of the boolean.
        holds: Place,
        /// Body of the loop.
        body: Block,
    },
    /// Runs a block for each row of some arrays.
    Scan {
        /// Number of steps.
        length: usize,
        /// If true, starts with the last row.
        reverse: bool,
        /// Rows that are read before each step.
        read: Vec<Rows>,
        /// Body of the loop.
        body: Block,
        /// Rows that are written after each step.
        write: Vec<Rows>,
        /// Block that runs after the rows are written.
        then: Block,
    },
    /// Runs one of several blocks, selected by a boolean or an index, which is clamped to the valid range.
    Switch(Place, Vec<Block>),
    /// Runs a call of the caller of [`Program::run`] with this number.
    Call(usize),
    /// Runs a block, then another block while a boolean is true, which both blocks compute. [`Program`]s use it instead of
    /// [`While`](Self::While).
    Repeat {
        /// Block that computes the boolean first.
        first: Block,
        /// Place of the boolean.
        holds: Place,
        /// Body of the loop, which also recomputes the boolean.
        then: Block,
    },
    /// Applies a function to single elements by index. [`Program`]s use it in place of other instructions.
    Single(Single, [u32; 2], u32),
}
