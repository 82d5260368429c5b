use burn::tensor::Tensor;
use grove_backend::{Backend, RowNormOptions};
use grove_tree::{Array, Init, Tree};

use crate::row_norm::row_norm;

/// Division of the last axis by the root of its mean square, then scaled (Zhang and Sennrich, "Root Mean Square Layer
/// Normalization", 2019).
#[derive(Tree, Clone, Debug)]
pub struct RmsNorm<B: Backend> {
    /// Scale, `[size]`.
    pub weight: Array<B, 1>,
    /// What is added to the mean square.
    pub eps: f64,
}

impl<B: Backend> RmsNorm<B> {
    /// Scale 1.
    pub fn new(size: usize, eps: f64, init: &Init<B>) -> Self {
        Self { weight: init.ones([size]), eps }
    }

    /// Squares of 16-bit numbers are summed in f32.
    ///
    /// # Shapes
    /// - input `[..., size]`
    /// - output `[..., size]`
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        row_norm(x, &self.weight, None, RowNormOptions { centred: false, eps: self.eps })
    }
}
