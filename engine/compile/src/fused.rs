//! Chains of functions of elements.

use burn::tensor::Shape;
use grove_backend::ops::chain::Chain;

/// A chain of functions of f32 elements, and sums of their results, that runs as one pass over memory, on backends with a kernel
/// for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    pub(crate) chain: Chain,
    pub(crate) shapes: Vec<Shape>,
    /// The operations, for print.
    pub(crate) names: Vec<String>,
}
