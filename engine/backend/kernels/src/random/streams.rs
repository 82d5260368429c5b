//! Distributions as functions of a key and an index.

use std::f32::consts::SQRT_2;

use super::{
    fill::Stream,
    special::{erf_inv, log},
};
use crate::threefry;

/// Uniform samples, from which other distributions are derived.
pub(super) struct Uniform {
    key: [u32; 2],
    low: f32,
    span: f32,
}

impl Uniform {
    pub(super) fn new(key: [u32; 2], low: f32, high: f32) -> Self {
        Self { key, low, span: high - low }
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

pub(super) struct Bernoulli {
    pub uniform: Uniform,
    pub p: f32,
}

impl Stream for Bernoulli {
    type Item = bool;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> bool {
        self.uniform.item(counter) < self.p
    }
}

pub(super) struct Normal {
    pub uniform: Uniform,
}

impl Stream for Normal {
    type Item = f32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> f32 {
        SQRT_2 * erf_inv(self.uniform.item(counter))
    }
}

pub(super) struct TruncatedNormal {
    pub uniform: Uniform,
    pub smallest: f32,
    pub largest: f32,
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

pub(super) struct Gumbel {
    pub uniform: Uniform,
}

impl Stream for Gumbel {
    type Item = f32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> f32 {
        -log(-log(self.uniform.item(counter)))
    }
}

/// Integers as remainders of 64 random bits, so that the bias towards small integers is negligible.
pub(super) struct Integers {
    high_bits: [u32; 2],
    low_bits: [u32; 2],
    low: i32,
    span: u32,
    /// 2^32 modulo `span`.
    wrap: u32,
}

impl Integers {
    pub(super) fn new(key: [u32; 2], low: i32, high: i32) -> Self {
        let [high_bits, low_bits] = [0, 1].map(|child| threefry::threefry2x32(key, threefry::counter(child)));
        let span = if high > low { high.abs_diff(low) } else { 1 };
        // jax squares 2^16 modulo span in 32 bits, which wraps to zero if span exceeds 2^16.
        let root = (1 << 16) % span;
        Self { high_bits, low_bits, low, span, wrap: root.wrapping_mul(root) % span }
    }
}

impl Stream for Integers {
    type Item = i32;

    #[inline(always)]
    fn item(&self, counter: [u32; 2]) -> i32 {
        let high = threefry::bits(self.high_bits, counter) % self.span;
        let low = threefry::bits(self.low_bits, counter) % self.span;
        let offset = high.wrapping_mul(self.wrap).wrapping_add(low) % self.span;
        self.low.wrapping_add_unsigned(offset)
    }
}
