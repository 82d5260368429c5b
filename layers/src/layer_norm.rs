use burn::tensor::Tensor;
use grove_backend::{Backend, ops::RowNorm};
use grove_tree::{Array, Init, Tree};

use crate::row_norm::row_norm;

/// Layer normalisation (Ba et al., 2016): normalises the last axis to mean 0 and variance 1, then scales and shifts
/// it.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::LayerNorm;
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let norm = LayerNorm::<B>::new(4, 1e-5, &Init::new(Key::new(0), &device));
/// let y = norm.forward(Tensor::<B, 2>::from_floats([[1.0, 2.0, 3.0, 4.0]], &device));
/// assert!(y.mean().into_scalar().abs() < 1e-6);
/// ```
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
    pub fn new(size: usize, eps: f64, init: impl Into<Init<B>>) -> Self {
        let init = init.into();
        Self { weight: init.ones([size]), bias: Some(init.zeros([size])), eps }
    }

    /// Applies the normalisation.
    ///
    /// # Shapes
    /// - input `[..., size]`
    /// - output `[..., size]`
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        row_norm(x, &self.weight, self.bias.as_ref(), RowNorm { centred: true, eps: self.eps })
    }

    /// Normalises the channels of each pixel of images, as in ConvNeXt.
    ///
    /// # Shapes
    /// - input `[b, size, h, w]`
    /// - output `[b, size, h, w]`
    #[track_caller]
    pub fn forward_channels(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.forward(x.permute([0, 2, 3, 1])).permute([0, 3, 1, 2])
    }
}
