//! Random bits, uniform samples and Bernoulli samples.

use burn::tensor::backend::Backend;
use burn::tensor::{Bool, Int, Tensor, TensorData};
use grove_backend::threefry;

use super::Key;
use super::fill::{Stream, fill};

impl Key {
    /// `n` words of 32 random bits (`jax.random.bits`).
    pub fn bits(self, n: usize) -> Vec<u32> {
        fill(&Bits { key: self.words }, n)
    }

    /// A tensor of 32 random bits an element, u32 (`jax.random.bits`), drawn on the device.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn random_bits<B: grove_backend::Backend, const D: usize>(
        self,
        shape: [usize; D],
        device: &B::Device,
    ) -> Tensor<B, D, Int> {
        grove_backend::random_bits(self.words, shape, device)
    }

    /// `n` samples of the uniform distribution on `[low, high)`; see [`Key::uniform`].
    pub fn uniform_vec(self, n: usize, low: f32, high: f32) -> Vec<f32> {
        fill(&Uniform::new(self, low, high), n)
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
        let values = self.uniform_vec(shape.iter().product(), low, high);
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    /// `n` Bernoulli samples, each true with probability `p`; see [`Key::bernoulli`].
    pub fn bernoulli_vec(self, n: usize, p: f32) -> Vec<bool> {
        let uniform = Uniform::new(self, 0.0, 1.0);
        fill(&Bernoulli { uniform, p }, n)
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
        let values = self.bernoulli_vec(shape.iter().product(), p);
        Tensor::from_data(TensorData::new(values, shape), device)
    }
}

struct Bits {
    key: [u32; 2],
}

impl Stream for Bits {
    type Item = u32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> u32 {
        threefry::bits(self.key, counter)
    }
}

/// Uniform samples, from which other distributions are derived.
pub(super) struct Uniform {
    key: [u32; 2],
    low: f32,
    span: f32,
}

impl Uniform {
    pub(super) fn new(key: Key, low: f32, high: f32) -> Self {
        Self { key: key.words, low, span: high - low }
    }
}

impl Stream for Uniform {
    type Item = f32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> f32 {
        // 23 bits as the fraction of a float in [1, 2).
        let fraction = threefry::bits(self.key, counter) >> 9;
        let unit = f32::from_bits(fraction | 1.0_f32.to_bits()) - 1.0;
        let value = unit.mul_add(self.span, self.low);
        // Unlike `f32::max`, this preserves NaN.
        if value < self.low { self.low } else { value }
    }
}

struct Bernoulli {
    uniform: Uniform,
    p: f32,
}

impl Stream for Bernoulli {
    type Item = bool;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> bool {
        self.uniform.item(counter) < self.p
    }
}
