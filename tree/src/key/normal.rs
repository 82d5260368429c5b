//! Normal and truncated normal numbers.

use std::f32::consts::{FRAC_1_SQRT_2, SQRT_2};

use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorData};

use super::Key;
use super::fill::{Stream, fill};
use super::special::{erf, erf_inv};
use super::uniform::Uniform;

impl Key {
    /// `n` numbers from the standard normal distribution; see [`Key::normal`].
    pub fn normal_vec(self, n: usize) -> Vec<f32> {
        // Open at both ends, where the inverse of erf is infinite.
        let uniform = Uniform::new(self, (-1.0_f32).next_up(), 1.0);
        fill(&Normal { uniform }, n)
    }

    /// A tensor from the standard normal distribution (`jax.random.normal`): mean zero, variance one.
    ///
    /// The largest absolute value that can come is 5.42.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn normal<B: Backend, const D: usize>(self, shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
        let values = self.normal_vec(shape.iter().product());
        Tensor::from_data(TensorData::new(values, shape), device)
    }

    /// `n` numbers from the standard normal distribution, given that they lie between `lower` and
    /// `upper`; see [`Key::truncated_normal`].
    pub fn truncated_normal_vec(self, n: usize, lower: f32, upper: f32) -> Vec<f32> {
        let (low, high) = (erf(lower * FRAC_1_SQRT_2), erf(upper * FRAC_1_SQRT_2));
        let stream = TruncatedNormal {
            uniform: Uniform::new(self, low, high),
            smallest: lower.next_up(),
            largest: upper.next_down(),
        };
        fill(&stream, n)
    }

    /// A tensor from the standard normal distribution, given that its elements lie in the open interval
    /// from `lower` to `upper` (`jax.random.truncated_normal`).
    ///
    /// The bounds are in units of the standard deviation and may be infinite. Between two bounds that both
    /// lie beyond 5.29, on one side, f32 has no resolution left: every number is next to the bound that is
    /// farther from zero. As in jax, bounds are not checked: every number is the one just below `upper`
    /// when `lower >= upper`.
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
        // Not `clamp`, which panics on bounds in the wrong order. NaN passes.
        let value = if value < self.smallest { self.smallest } else { value };
        if value > self.largest { self.largest } else { value }
    }
}
