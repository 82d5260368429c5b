//! Results of the rules of shapes and types, and their requirements.

use burn::tensor::{DType, Shape};
use grove_backend::ops::Spec;

/// Shape and type of an output.
pub(super) type Expected = (Vec<usize>, Type);

/// The type of an output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Type {
    Exactly(DType),
    /// A type of integers, which depends on the backend.
    Int,
    /// A type of booleans, which depends on the backend.
    Bool,
    /// A type of floating-point numbers.
    Float,
}

/// Fails unless the rule holds, with the sentence.
pub(super) fn require(holds: bool, rule: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.into()) }
}

/// The inputs, as many as an operation takes.
pub(super) fn take<'a, const N: usize>(inputs: &[&'a Spec]) -> Result<[&'a Spec; N], String> {
    inputs.try_into().map_err(|_| format!("it takes {N} inputs"))
}

/// The shape with another size of an axis.
pub(super) fn with(shape: &Shape, axis: usize, size: usize) -> Result<Vec<usize>, String> {
    let mut sizes = shape.to_vec();
    let rank = sizes.len();
    *sizes.get_mut(axis).ok_or_else(|| format!("axis {axis} of {rank} axes"))? = size;
    Ok(sizes)
}
