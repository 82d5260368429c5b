//! Operations with sub-graphs.

use grove_backend::ops::Spec;
use serde::{Deserialize, Serialize};

use super::{graph::SubGraph, lazy::LazyGraph};

/// An operation with sub-graphs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum HigherOrder {
    /// One of several branches, all of which take the same operands. The inputs are the condition `[1]` and the operands. The
    /// condition is a boolean (true selects the second branch) or the index of a branch, which is clamped to the valid range.
    Cond {
        /// The branches.
        branches: Vec<SubGraph>,
    },
    /// A loop with a condition. The inputs are constants and the carry; the results are the final carry.
    While(WhileLoop),
    /// A loop over the first axis of arrays. The inputs are constants, the carry and arrays; the results are the final carry
    /// and the stacked results of the steps.
    Scan(ScanLoop),
    /// A function with a custom forward-mode rule.
    CustomJvp {
        /// Name of the function.
        name: String,
        /// The function.
        function: SubGraph,
        /// Maps arguments and the tangents of floating-point arguments to results and the tangents of floating-point results.
        jvp: LazyGraph,
    },
    /// A function with a custom reverse-mode rule.
    CustomVjp {
        /// Name of the function.
        name: String,
        /// The function.
        function: SubGraph,
        /// Maps arguments to results and residuals.
        forward: SubGraph,
        /// Maps residuals and the gradients of floating-point results to the gradients of floating-point arguments.
        backward: LazyGraph,
    },
}

/// A loop with a condition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhileLoop {
    /// Maps constants and carry to a boolean, `[1]`.
    pub cond: SubGraph,
    /// Maps constants and carry to the next carry.
    pub body: SubGraph,
    /// Number of constants.
    pub consts: usize,
}

/// A loop over the first axis of arrays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScanLoop {
    /// Maps constants, carry and one step of the arrays to the next carry and one step of the results.
    pub body: SubGraph,
    /// Number of steps.
    pub length: usize,
    /// True if the loop starts with the last step.
    pub reverse: bool,
    /// Number of constants.
    pub consts: usize,
    /// Number of arrays in the carry.
    pub carries: usize,
}

impl ScanLoop {
    /// Returns the types of the results.
    pub(crate) fn output_specs(&self) -> Vec<Spec> {
        let specs = self.body.output_specs().into_iter().enumerate();
        specs.map(|(i, spec)| if i < self.carries { spec } else { stacked(&spec, self.length) }).collect()
    }
}

impl HigherOrder {
    /// Returns the name of the operation, as in `jax.lax`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            // A single branch always runs; the operation exists for `remat`.
            Self::Cond { branches } if branches.len() == 1 => "checkpoint",
            Self::Cond { .. } => "cond",
            Self::While(_) => "while",
            Self::Scan(_) => "scan",
            Self::CustomJvp { .. } => "custom_jvp_call",
            Self::CustomVjp { .. } => "custom_vjp_call",
        }
    }

    /// Returns the types of the results.
    pub(crate) fn output_specs(&self) -> Vec<Spec> {
        match self {
            Self::Cond { branches } => branches.first().map(SubGraph::output_specs).unwrap_or_default(),
            Self::While(WhileLoop { body, .. }) => body.output_specs(),
            Self::Scan(scan) => scan.output_specs(),
            Self::CustomJvp { function, .. } | Self::CustomVjp { function, .. } => function.output_specs(),
        }
    }
}

/// Returns the type of an array of `length` steps.
pub(crate) fn stacked(spec: &Spec, length: usize) -> Spec {
    Spec { shape: [&[length], &spec.shape[..]].concat().into(), dtype: spec.dtype }
}

/// Returns true for floating-point arrays, which have derivatives.
pub(crate) fn is_float(spec: &Spec) -> bool {
    spec.dtype.is_float()
}
