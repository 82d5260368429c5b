//! Normal and truncated normal samples.

use burn::tensor::Tensor;
use grove_backend::{
    Backend, ops,
    random::{self, Distribution},
};

use super::Key;

impl Key {
    /// Returns `n` samples of the standard normal distribution; see [`Key::normal`].
    pub fn normal_vec(self, n: usize) -> Vec<f32> {
        random::normal(self.host_words(), n)
    }

    /// Samples the standard normal distribution (`jax.random.normal`): mean 0, variance 1.
    ///
    /// The largest possible absolute value of a sample is 5.42.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn normal<B: Backend, const D: usize>(self, shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
        ops::random_floats(self.words, Distribution::Normal, shape, device)
    }

    /// Returns `n` samples of the standard normal distribution truncated to `lower..upper`; see
    /// [`Key::truncated_normal`].
    pub fn truncated_normal_vec(self, n: usize, lower: f32, upper: f32) -> Vec<f32> {
        random::truncated_normal(self.host_words(), n, lower, upper)
    }

    /// Samples the standard normal distribution truncated to the open interval from `lower` to `upper`
    /// (`jax.random.truncated_normal`).
    ///
    /// The bounds are in units of the standard deviation and may be infinite. If both bounds are beyond 5.29 on the
    /// same side, f32 cannot resolve the interval: every sample is next to the bound that is farther from zero. As in
    /// JAX, the bounds are not checked: every sample is the largest float below `upper` if `lower >= upper`.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn truncated_normal<B: Backend, const D: usize>(
        self,
        shape: [usize; D],
        lower: f32,
        upper: f32,
        device: &B::Device,
    ) -> Tensor<B, D> {
        ops::random_floats(self.words, Distribution::TruncatedNormal { lower, upper }, shape, device)
    }
}
