//! Random bits, uniform samples and Bernoulli samples.

use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{
    Backend, ops,
    random::{self, Distribution},
};

use super::Key;

impl Key {
    /// Returns `n` words of 32 random bits (`jax.random.bits`).
    pub fn bits(self, n: usize) -> Vec<u32> {
        random::bits(self.host_words(), n)
    }

    /// Samples 32 random bits per element, u32 (`jax.random.bits`), on the device.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn random_bits<B: Backend, const D: usize>(self, shape: [usize; D], device: &B::Device) -> Tensor<B, D, Int> {
        grove_backend::random_bits(self.words, shape, device)
    }

    /// Returns `n` samples of the uniform distribution on `[low, high)`; see [`Key::uniform`].
    pub fn uniform_vec(self, n: usize, low: f32, high: f32) -> Vec<f32> {
        random::uniform(self.host_words(), n, low, high)
    }

    /// Samples the uniform distribution on `[low, high)` (`jax.random.uniform`).
    ///
    /// Samples take 2^23 different values, evenly spaced. As in JAX, the bounds are not checked: every sample is `low`
    /// if `high <= low`, and some samples are infinite or NaN if `high - low` overflows or a bound is not finite.
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

    /// Returns `n` Bernoulli samples, each true with probability `p`; see [`Key::bernoulli`].
    pub fn bernoulli_vec(self, n: usize, p: f32) -> Vec<bool> {
        random::bernoulli(self.host_words(), n, p)
    }

    /// Samples the Bernoulli distribution: each element is true with probability `p` (`jax.random.bernoulli`).
    ///
    /// The resolution of `p` is 2^-23. As in JAX, `p` is not checked: every sample is true if `p >= 1`, and false if
    /// `p` is negative or NaN.
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
