//! Fused chains of element-wise operations.

use burn::tensor::Shape;
use grove_backend::ops::chain::Chain;

/// A chain of element-wise f32 operations and sums of their results. On backends with a kernel for such chains it runs as one
/// pass over memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    pub(crate) chain: Chain,
    pub(crate) shapes: Vec<Shape>,
    /// Names of the fused operations, for printing.
    pub(crate) names: Vec<String>,
}
