//! Types that the rules for shapes and dtypes expect, and checks of their requirements.

use burn::tensor::{DType, Shape};
use grove_backend::ops::Spec;

/// Shape and type of an output.
pub(super) type Expected = (Vec<usize>, Type);

/// Expected dtype of an output.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Type {
    Exactly(DType),
    /// An integer dtype, which depends on the backend.
    Int,
    /// A boolean dtype, which depends on the backend.
    Bool,
    /// Any floating-point dtype.
    Float,
}

/// Returns an error with the text of the rule if the rule does not hold.
pub(crate) fn require(holds: bool, rule: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(rule.into()) }
}

/// Returns the inputs as an array; an error unless there are `N`.
pub(super) fn take<'a, const N: usize>(inputs: &[&'a Spec]) -> Result<[&'a Spec; N], String> {
    inputs.try_into().map_err(|_| format!("it must have {N} inputs"))
}

/// Returns the shape with the size of one axis replaced.
pub(super) fn with(shape: &Shape, axis: usize, size: usize) -> Result<Vec<usize>, String> {
    let mut sizes = shape.to_vec();
    let rank = sizes.len();
    *sizes.get_mut(axis).ok_or_else(|| format!("axis {axis} is out of range for {rank} axes"))? = size;
    Ok(sizes)
}
