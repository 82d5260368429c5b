//! Random bits, uniform samples and Bernoulli samples.

use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{
    Backend, ops,
    random::{self, Distribution},
};

use super::Key;

impl Key {
    /// `n` words of 32 random bits (`jax.random.bits`).
    pub fn bits(self, n: usize) -> Vec<u32> {
        random::bits(self.host_words(), n)
    }

    /// A tensor of 32 random bits an element, u32 (`jax.random.bits`), drawn on the device.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn random_bits<B: Backend, const D: usize>(self, shape: [usize; D], device: &B::Device) -> Tensor<B, D, Int> {
        grove_backend::random_bits(self.words, shape, device)
    }

    /// `n` samples of the uniform distribution on `[low, high)`; see [`Key::uniform`].
    pub fn uniform_vec(self, n: usize, low: f32, high: f32) -> Vec<f32> {
        random::uniform(self.host_words(), n, low, high)
    }

    /// A tensor of samples of the uniform distribution on `[low, high)` (`jax.random.uniform`).
    ///
    /// There are 2^23 different values, evenly spaced. As in jax, bounds are not checked: every value is `low` if
    /// `high <= low`, and some are infinite or NaN if `high - low` overflows or a bound is not finite.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn uniform<B: Backend, const D: usize>(
        self,
        shape: [usize; D],
        low: f32,
        high: f32,
        device: &B::Device,
    ) -> Tensor<B, D> {
        ops::random_floats(self.words, Distribution::Uniform { low, high }, shape, device)
    }

    /// `n` Bernoulli samples, each true with probability `p`; see [`Key::bernoulli`].
    pub fn bernoulli_vec(self, n: usize, p: f32) -> Vec<bool> {
        random::bernoulli(self.host_words(), n, p)
    }

    /// A tensor of Bernoulli samples, each true with probability `p` (`jax.random.bernoulli`).
    ///
    /// The resolution of `p` is 2^-23. As in jax, `p` is not checked: from one on every sample is true, and below
    /// zero, or for NaN, every sample is false.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn bernoulli<B: Backend, const D: usize>(
        self,
        shape: [usize; D],
        p: f32,
        device: &B::Device,
    ) -> Tensor<B, D, Bool> {
        ops::random_booleans(self.words, Distribution::Bernoulli { p }, shape, device)
    }
}
