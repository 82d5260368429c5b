//! Element-wise functions. A file for each family has all rules of its functions, except their shape, batching and cost, which
//! are the same for the whole family.

mod binary;
mod unary;

use burn::tensor::DType;
use grove_backend::{AnyTensor, Backend};

use crate::eval::kind;
pub use binary::Binary;
pub(crate) use binary::Looped;
pub use unary::Unary;

/// Kind of the elements of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Float,
    Int,
    Bool,
}

impl Kind {
    pub(crate) fn of(dtype: DType) -> Self {
        match dtype {
            dtype if dtype.is_float() => Self::Float,
            DType::Bool(_) => Self::Bool,
            _ => Self::Int,
        }
    }
}

fn undefined<B: Backend>(op: &impl std::fmt::Debug, x: &AnyTensor<B>) -> ! {
    panic!("{op:?} is not defined for {}", kind(x))
}
