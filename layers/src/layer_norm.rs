use burn::tensor::Tensor;
use grove_backend::{Backend, RowNormOptions};
use grove_tree::{Array, Init, Tree};

use crate::row_norm::row_norm;

/// Layer normalisation (Ba et al., 2016): normalises the last axis to mean 0 and variance 1, then scales and shifts
/// it.
#[derive(Tree, Clone, Debug)]
pub struct LayerNorm<B: Backend> {
    /// Scale, `[size]`.
    pub weight: Array<B, 1>,
    /// Shift, `[size]`; `None` for no shift.
    pub bias: Option<Array<B, 1>>,
    /// Added to the variance for numerical stability.
    pub eps: f64,
}

impl<B: Backend> LayerNorm<B> {
    /// Creates a layer with scale 1 and shift 0.
    pub fn new(size: usize, eps: f64, init: &Init<B>) -> Self {
        Self { weight: init.ones([size]), bias: Some(init.zeros([size])), eps }
    }

    /// Applies the normalisation.
    ///
    /// # Shapes
    /// - input `[..., size]`
    /// - output `[..., size]`
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        row_norm(x, &self.weight, self.bias.as_ref(), RowNormOptions { centred: true, eps: self.eps })
    }
}
