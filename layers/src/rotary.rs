//! Rotary position embedding: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).

use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::{Backend, ops};
use std::f64::consts::PI;

/// Scaling of the rotation angles for sequences longer than those of training.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// No scaling.
    None,
    /// All angles are divided by a factor (Chen et al., "Extending Context Window of Large Language Models via
    /// Positional Interpolation", 2023).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// Dynamic NTK: the base grows with the sequence length beyond that of training.
    Dynamic {
        /// Scaling factor. The base is multiplied by
        /// `(factor * len / original - (factor - 1))^(head_dim / (head_dim - 2))`.
        factor: f64,
        /// Sequence length of training.
        original: usize,
    },
    /// LLaMA 3.1's scaling: low frequencies are divided by `factor`, high ones are unchanged, and those between are
    /// interpolated.
    Llama3 {
        /// Divisor of low frequencies.
        factor: f64,
        /// Frequencies with fewer rotations than this over the training sequence length are low.
        low_freq_factor: f64,
        /// Frequencies with more rotations than this over the training sequence length are high.
        high_freq_factor: f64,
        /// Sequence length of training.
        original: usize,
    },
    /// YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023).
    Yarn {
        /// Divisor of low frequencies.
        factor: f64,
        /// Frequencies with more rotations than this over the training sequence length are unchanged.
        beta_fast: f64,
        /// Frequencies with fewer rotations than this over the training sequence length are divided by `factor`.
        beta_slow: f64,
        /// Sequence length of training.
        original: usize,
        /// Factor of queries and of keys. `None` selects `0.1 ln(factor) + 1`, or 1 if `factor` is at most 1.
        attention_factor: Option<f64>,
        /// If true, the bounds of the interpolated range are rounded to whole numbers.
        truncate: bool,
    },
    /// LongRoPE (Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024): each angle is
    /// divided by its own factor, from one list up to the training sequence length and from another beyond it.
    LongRope {
        /// Factors up to the training sequence length.
        short: Vec<f32>,
        /// Factors beyond the training sequence length.
        long: Vec<f32>,
        /// Sequence length of training.
        original: usize,
        /// Factor of queries and of keys.
        attention_factor: f64,
    },
    /// Each angle is divided by its own factor. GGUF files store these factors.
    Factors(Vec<f32>),
}

/// Rotary position embedding: the angles by which pairs of elements of queries and keys are rotated at each position.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Head dimension, an even number.
    pub head_dim: usize,
    /// Base of the frequencies: the angle of pair `j` at position `p` is `p * base^(-2 j / head_dim)`.
    pub base: f64,
    /// Scaling of the angles.
    pub scaling: RopeScaling,
    /// If true, the elements of a pair are adjacent, as in Meta's files; otherwise half a head apart, as in transformers.
    pub interleaved: bool,
}

impl Rope {
    /// Angle per position of each pair in a sequence of `len` positions, and the factor of cosine and sine.
    fn angles(&self, len: usize) -> (Vec<f32>, f32) {
        let half = self.head_dim / 2;
        let with = |base: f64| -> Vec<f32> {
            let exponent = |j: usize| (2 * j) as f32 / self.head_dim as f32;
            // In f32, as in the reference implementation.
            (0..half).map(|j| 1.0 / (base as f32).powf(exponent(j))).collect()
        };
        let plain = with(self.base);
        let turns = |angle: f32, original: usize| original as f64 * f64::from(angle) / (2.0 * PI);
        match &self.scaling {
            RopeScaling::None => (plain, 1.0),
            RopeScaling::Linear { factor } => (plain.iter().map(|angle| angle / *factor as f32).collect(), 1.0),
            RopeScaling::Factors(factors) => {
                (plain.iter().zip(factors).map(|(angle, factor)| angle / factor).collect(), 1.0)
            }
            RopeScaling::Dynamic { factor, original } => {
                let len = len.max(*original) as f64;
                let stretch = factor * len / *original as f64 - (factor - 1.0);
                let exponent = self.head_dim as f64 / (self.head_dim as f64 - 2.0).max(1.0);
                (with(self.base * stretch.powf(exponent)), 1.0)
            }
            RopeScaling::Llama3 { factor, low_freq_factor: low, high_freq_factor: high, original } => {
                let scaled = |&angle: &f32| {
                    // 1 for high frequencies, 0 for low ones.
                    let fast = ((turns(angle, *original) - low) / (high - low)).clamp(0.0, 1.0);
                    (f64::from(angle) * (fast + (1.0 - fast) / factor)) as f32
                };
                (plain.iter().map(scaled).collect(), 1.0)
            }
            RopeScaling::LongRope { short, long, original, attention_factor } => {
                let factors = if len > *original { long } else { short };
                let angles = plain.iter().zip(factors).map(|(angle, factor)| angle / factor).collect();
                (angles, *attention_factor as f32)
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original, attention_factor, truncate } => {
                // Index of the pair with this number of rotations over the training sequence length.
                let pair = |turns: f64| {
                    self.head_dim as f64 * (*original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.base.ln())
                };
                let bounds = [pair(*beta_fast), pair(*beta_slow)];
                let [first, last] = if *truncate { [bounds[0].floor(), bounds[1].ceil()] } else { bounds };
                let (first, last) = (first.max(0.0), last.min(self.head_dim as f64 - 1.0));
                let width = if first == last { 1e-3 } else { last - first };
                let scaled = |(j, &angle): (usize, &f32)| {
                    let slow = ((j as f64 - first) / width).clamp(0.0, 1.0);
                    (f64::from(angle) * (1.0 - slow + slow / factor)) as f32
                };
                let magnitude = if *factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 };
                let angles = plain.iter().enumerate().map(scaled).collect();
                (angles, attention_factor.unwrap_or(magnitude) as f32)
            }
        }
    }

    /// Divisor of each angle due to the scaling.
    pub fn factors(&self) -> Vec<f32> {
        let plain = Self { scaling: RopeScaling::None, ..self.clone() };
        plain.angles(0).0.iter().zip(self.angles(0).0).map(|(plain, scaled)| plain / scaled).collect()
    }

    /// Returns true if the angles of a position depend on the sequence length. All positions then have the same angles only
    /// if the whole sequence is processed at once.
    pub fn depends_on_length(&self) -> bool {
        matches!(self.scaling, RopeScaling::Dynamic { .. } | RopeScaling::LongRope { .. })
    }

    /// Computes a table of the rotations at positions `0..len`, from which the positions of a decoding step are selected.
    /// If the angles depend on the sequence length, position p uses the angles of a sequence of `max(p + 1, least)`
    /// positions.
    pub fn table<B: Backend>(&self, len: usize, least: usize, dtype: DType, device: &B::Device) -> RopeAngles<B> {
        let positions: Vec<usize> = (0..len).collect();
        if !self.depends_on_length() {
            return self.at(&positions, 1, dtype, device);
        }
        let angles: Vec<_> = (1..=len).map(|len| self.angles(len.max(least))).collect();
        let turns: Vec<_> = positions.into_iter().zip(&angles).collect();
        self.rotations(&turns, 1, dtype, device)
    }

    /// Computes the rotations at positions. `positions` holds `rows` concatenated rows of equal length: one row for all
    /// sequences of a batch, or one row per sequence.
    pub fn at<B: Backend>(&self, positions: &[usize], rows: usize, dtype: DType, device: &B::Device) -> RopeAngles<B> {
        let angles = self.angles(positions.iter().max().map_or(0, |last| last + 1));
        let turns: Vec<_> = positions.iter().map(|&position| (position, &angles)).collect();
        self.rotations(&turns, rows, dtype, device)
    }

    /// Computes the rotations at positions, each with the [`angles`](Self::angles) of its sequence.
    fn rotations<B: Backend>(
        &self,
        turns: &[(usize, &(Vec<f32>, f32))],
        rows: usize,
        dtype: DType,
        device: &B::Device,
    ) -> RopeAngles<B> {
        let shape = [rows, turns.len() / rows.max(1), self.head_dim / 2];
        let table = |f: fn(f32) -> f32| {
            let values = turns.iter().flat_map(|&(position, (angles, magnitude))| {
                angles.iter().map(move |angle| f(position as f32 * angle) * magnitude)
            });
            let table = TensorData::new(values.collect::<Vec<f32>>(), shape).convert_dtype(dtype);
            Tensor::<B, 3>::from_data(table, (device, dtype))
        };
        RopeAngles { cos: table(f32::cos), sin: table(f32::sin), interleaved: self.interleaved }
    }
}

/// Cosines and sines that rotate the queries and keys at given positions, shared by all layers.
#[derive(Clone, Debug)]
pub struct RopeAngles<B: Backend> {
    /// `[b or 1, t, head_dim / 2]`.
    cos: Tensor<B, 3>,
    sin: Tensor<B, 3>,
    interleaved: bool,
}

impl<B: Backend> RopeAngles<B> {
    /// Selects the rotations at positions, given as an array. `self` must hold the rotations at positions `0..len`.
    ///
    /// # Shapes
    /// - positions `[b or 1, t]`
    #[track_caller]
    pub fn select(&self, positions: Tensor<B, 2, Int>) -> Self {
        let [b, t] = positions.dims();
        let flat = positions.reshape([b * t]);
        let rows = |table: &Tensor<B, 3>| {
            let [_, _, half] = table.dims();
            table.clone().select(1, flat.clone()).reshape([b, t, half])
        };
        Self { cos: rows(&self.cos), sin: rows(&self.sin), interleaved: self.interleaved }
    }

    /// Rotates queries or keys.
    ///
    /// # Shapes
    /// - input and output `[b, t, n_head, head_dim]`
    #[track_caller]
    pub fn apply(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        ops::apply_rope(x, self.cos.clone(), self.sin.clone(), self.interleaved)
    }
}
