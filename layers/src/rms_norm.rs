use burn::tensor::Tensor;
use grove_backend::{Backend, ops::RowNorm};
use grove_tree::{Array, Init, Tree};

use crate::row_norm::row_norm;

/// Root mean square normalisation (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019): divides the last axis
/// by its root mean square, then scales it.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::RmsNorm;
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let norm = RmsNorm::<B>::new(2, 1e-6, &Init::new(Key::new(0), &device));
/// let y = norm.forward(Tensor::<B, 2>::from_floats([[3.0, 4.0]], &device));
/// assert!((y.square().mean().into_scalar() - 1.0).abs() < 1e-4);
/// ```
#[derive(Tree, Clone, Debug)]
pub struct RmsNorm<B: Backend> {
    /// Scale, `[size]`.
    pub weight: Array<B, 1>,
    /// Added to the mean square for numerical stability.
    pub eps: f64,
}

impl<B: Backend> RmsNorm<B> {
    /// Creates a layer with scale 1.
    pub fn new(size: usize, eps: f64, init: impl Into<Init<B>>) -> Self {
        let init = init.into();
        Self { weight: init.ones([size]), eps }
    }

    /// Applies the normalisation. Squares of f16 and bf16 values are summed in f32.
    ///
    /// # Shapes
    /// - input `[..., size]`
    /// - output `[..., size]`
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        row_norm(x, &self.weight, None, RowNorm { centred: false, eps: self.eps })
    }
}
