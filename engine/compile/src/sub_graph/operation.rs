//! Operations with sub-graphs.

use grove_backend::ops::Spec;
use serde::{Deserialize, Serialize};

use super::{graph::SubGraph, lazy::LazyGraph};

/// An operation with sub-graphs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HigherOrder {
    /// One of several branches, all of which take the same operands: inputs are a truth value (the second branch where it is true)
    /// or the index of a branch, `[1]`, which is clamped to the branches that there are, and the operands.
    Cond {
        /// The branches.
        branches: Vec<SubGraph>,
    },
    /// A loop while a condition holds: inputs are constants and the carry, which is the result too.
    While {
        /// From constants and carry to a truth value, `[1]`.
        cond: SubGraph,
        /// From constants and carry to the next carry.
        body: SubGraph,
        /// Number of constants.
        consts: usize,
    },
    /// A loop over the first axis of arrays: inputs are constants, the carry and arrays; results are the last carry and arrays.
    Scan {
        /// From constants, carry and one step of the arrays to the next carry and one step of the results.
        body: SubGraph,
        /// Number of steps.
        length: usize,
        /// True if the last step comes first.
        reverse: bool,
        /// Number of constants.
        consts: usize,
        /// Number of arrays in the carry.
        carries: usize,
    },
    /// A function with a rule of forward-mode differentiation.
    CustomJvp {
        /// Name of the function.
        name: String,
        /// The function.
        function: SubGraph,
        /// From arguments and the tangents of those that are floating-point to results and the tangents of those that are.
        jvp: LazyGraph,
    },
    /// A function with a rule of reverse-mode differentiation.
    CustomVjp {
        /// Name of the function.
        name: String,
        /// The function.
        function: SubGraph,
        /// From arguments to results and residuals.
        forward: SubGraph,
        /// From residuals and the gradients of floating-point results to those of floating-point arguments.
        backward: LazyGraph,
    },
}

impl HigherOrder {
    /// Returns the name of the operation, as in `jax.lax`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            // A single branch is always taken: it is there to be computed again.
            Self::Cond { branches } if branches.len() == 1 => "checkpoint",
            Self::Cond { .. } => "cond",
            Self::While { .. } => "while",
            Self::Scan { .. } => "scan",
            Self::CustomJvp { .. } => "custom_jvp_call",
            Self::CustomVjp { .. } => "custom_vjp_call",
        }
    }

    /// Shapes and types of the results.
    pub(crate) fn output_specs(&self) -> Vec<Spec> {
        match self {
            Self::Cond { branches } => branches.first().map(SubGraph::output_specs).unwrap_or_default(),
            Self::While { body, .. } => body.output_specs(),
            Self::Scan { body, length, carries, .. } => {
                let specs = body.output_specs().into_iter().enumerate();
                specs.map(|(i, spec)| if i < *carries { spec } else { stacked(&spec, *length) }).collect()
            }
            Self::CustomJvp { function, .. } | Self::CustomVjp { function, .. } => function.output_specs(),
        }
    }
}

/// An array of so many steps.
pub(crate) fn stacked(spec: &Spec, length: usize) -> Spec {
    Spec { shape: [&[length], &spec.shape[..]].concat().into(), dtype: spec.dtype }
}

/// True for arrays that have derivatives.
pub(crate) fn is_float(spec: &Spec) -> bool {
    spec.dtype.is_float()
}
