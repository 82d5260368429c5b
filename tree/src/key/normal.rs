//! Normal and truncated normal samples.

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::Key;
use super::fill::{Stream, fill};
use super::special::{erf, erf_inv};
use super::uniform::Uniform;

impl Key {
    /// `n` samples of the standard normal distribution; see [`Key::normal`].
    pub fn normal_vec(self, n: usize) -> Vec<f32> {
        // The interval is open at both ends, where the inverse of erf is infinite.
        let uniform = Uniform::new(self, (-1.0_f32).next_up(), 1.0);
        fill(&Normal { uniform }, n)
    }

    /// A tensor of samples of the standard normal distribution (`jax.random.normal`): mean 0, variance 1.
    ///
    /// The largest possible absolute value is 5.42.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn normal<B: Backend, const D: usize>(self, shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
        let values = self.normal_vec(shape.iter().product());
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    /// `n` samples of the standard normal distribution truncated to `lower..upper`; see [`Key::truncated_normal`].
    pub fn truncated_normal_vec(self, n: usize, lower: f32, upper: f32) -> Vec<f32> {
        let (low, high) = (erf(lower * FRAC_1_SQRT_2), erf(upper * FRAC_1_SQRT_2));
        let stream = TruncatedNormal {
            uniform: Uniform::new(self, low, high),
            smallest: lower.next_up(),
            largest: upper.next_down(),
        };
        fill(&stream, n)
    }

    /// A tensor of samples of the standard normal distribution truncated to the open interval from `lower` to `upper`
    /// (`jax.random.truncated_normal`).
    ///
    /// The bounds are in units of the standard deviation and may be infinite. If both bounds are beyond 5.29 on the
    /// same side, f32 cannot resolve the interval: every value is next to the bound that is farther from zero. As in
    /// jax, bounds are not checked: every value is the one just below `upper` if `lower >= upper`.
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
        let values = self.truncated_normal_vec(shape.iter().product(), lower, upper);
        Tensor::from_data(TensorData::new(values, shape), device)
    }
}

struct Normal {
    uniform: Uniform,
}

impl Stream for Normal {
    type Item = f32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> f32 {
        SQRT_2 * erf_inv(self.uniform.item(counter))
    }
}

struct TruncatedNormal {
    uniform: Uniform,
    smallest: f32,
    largest: f32,
}

impl Stream for TruncatedNormal {
    type Item = f32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> f32 {
        let value = SQRT_2 * erf_inv(self.uniform.item(counter));
        // Not `clamp`, which panics if the bounds are in the wrong order. NaN is returned unchanged.
        let value = if value < self.smallest { self.smallest } else { value };
        if value > self.largest { self.largest } else { value }
    }
}
