//! Samples of random distributions from a key: those of `jax.random`, bit for bit.

mod fill;
mod special;
mod streams;

use fill::fill;
use streams::{Bernoulli, Gumbel, Integers, Normal, TruncatedNormal, Uniform};

use special::erf;
use std::f32::consts::FRAC_1_SQRT_2;

/// A distribution of random numbers.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Distribution {
    /// Uniform in `[low, high)`, in steps of `(high - low) / 2^23`.
    Uniform {
        /// Lower bound.
        #[serde(with = "crate::exact")]
        low: f32,
        /// Upper bound.
        #[serde(with = "crate::exact")]
        high: f32,
    },
    /// Normal with mean 0 and variance 1.
    Normal,
    /// Normal with mean 0 and variance 1, truncated to an interval.
    TruncatedNormal {
        /// Lower bound, in standard deviations.
        #[serde(with = "crate::exact")]
        lower: f32,
        /// Upper bound, in standard deviations.
        #[serde(with = "crate::exact")]
        upper: f32,
    },
    /// Standard Gumbel.
    Gumbel,
    /// True with probability `p`.
    Bernoulli {
        /// Probability of true.
        #[serde(with = "crate::exact")]
        p: f32,
    },
    /// Integers from `low` to `high - 1`, with equal probabilities.
    Integers {
        /// Smallest integer.
        low: i32,
        /// Largest integer plus one.
        high: i32,
    },
}

/// Samples of a [`Distribution`].
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Samples of floating-point distributions.
    Floats(Vec<f32>),
    /// Samples of [`Distribution::Integers`].
    Integers(Vec<i32>),
    /// Samples of [`Distribution::Bernoulli`].
    Booleans(Vec<bool>),
}

impl Distribution {
    /// Returns the first `n` samples for a key (high word first).
    pub fn samples(self, key: [u32; 2], n: usize) -> Samples {
        match self {
            Self::Uniform { low, high } => Samples::Floats(uniform(key, n, low, high)),
            Self::Normal => Samples::Floats(normal(key, n)),
            Self::TruncatedNormal { lower, upper } => Samples::Floats(truncated_normal(key, n, lower, upper)),
            Self::Gumbel => Samples::Floats(gumbel(key, n)),
            Self::Bernoulli { p } => Samples::Booleans(bernoulli(key, n, p)),
            Self::Integers { low, high } => Samples::Integers(integers(key, n, low, high)),
        }
    }
}

/// Returns `n` words of 32 random bits.
pub fn bits(key: [u32; 2], n: usize) -> Vec<u32> {
    crate::random_bits(key, n)
}

/// Returns `n` samples of the uniform distribution on `[low, high)`.
pub fn uniform(key: [u32; 2], n: usize, low: f32, high: f32) -> Vec<f32> {
    fill(&Uniform::new(key, low, high), n)
}

/// Returns `n` Bernoulli samples, each true with probability `p`.
pub fn bernoulli(key: [u32; 2], n: usize, p: f32) -> Vec<bool> {
    fill(&Bernoulli { uniform: Uniform::new(key, 0.0, 1.0), p }, n)
}

/// Returns `n` samples of the standard normal distribution.
pub fn normal(key: [u32; 2], n: usize) -> Vec<f32> {
    // The interval is open at both ends, where the inverse of erf is infinite.
    fill(&Normal { uniform: Uniform::new(key, (-1.0_f32).next_up(), 1.0) }, n)
}

/// Returns `n` samples of the standard normal distribution truncated to `lower..upper`.
pub fn truncated_normal(key: [u32; 2], n: usize, lower: f32, upper: f32) -> Vec<f32> {
    let (low, high) = (erf(lower * FRAC_1_SQRT_2), erf(upper * FRAC_1_SQRT_2));
    let uniform = Uniform::new(key, low, high);
    fill(&TruncatedNormal { uniform, smallest: lower.next_up(), largest: upper.next_down() }, n)
}

/// Returns `n` samples of the standard Gumbel distribution.
pub fn gumbel(key: [u32; 2], n: usize) -> Vec<f32> {
    // The lower bound is the smallest normal number, because the logarithm of zero is infinite.
    fill(&Gumbel { uniform: Uniform::new(key, f32::MIN_POSITIVE, 1.0) }, n)
}

/// Returns `n` integers from `low` to `high - 1`.
pub fn integers(key: [u32; 2], n: usize, low: i32, high: i32) -> Vec<i32> {
    fill(&Integers::new(key, low, high), n)
}
