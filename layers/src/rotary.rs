//! Rotary position embedding: Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).

use burn::tensor::{DType, Tensor, TensorData, TensorPrimitive};
use grove_backend::Backend;
use std::f64::consts::PI;

/// How angles change so that a model reads longer texts than it was trained on.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// Not at all.
    None,
    /// All angles divided by a factor (Chen et al., "Extending Context Window of Large Language Models via Positional
    /// Interpolation", 2023).
    Linear {
        /// The factor.
        factor: f64,
    },
    /// A larger base, the longer the text is beyond the length of training ("dynamic NTK").
    Dynamic {
        /// How much longer texts may be.
        factor: f64,
        /// Positions of the training.
        original: usize,
    },
    /// As LLaMA 3.1: slow angles divided, fast ones left, those between them blended.
    Llama3 {
        /// What slow angles are divided by.
        factor: f64,
        /// Angles that turn fewer times than this in the training's length are slow.
        low_freq_factor: f64,
        /// Those that turn more often than this are fast.
        high_freq_factor: f64,
        /// Positions of the training.
        original: usize,
    },
    /// YaRN (Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023).
    Yarn {
        /// What slow angles are divided by.
        factor: f64,
        /// Angles that turn more often than this in the training's length are fast.
        beta_fast: f64,
        /// Those that turn less often than this are slow.
        beta_slow: f64,
        /// Positions of the training.
        original: usize,
        /// What queries and keys are multiplied by, each; by default `0.1 ln(factor) + 1`.
        attention_factor: Option<f64>,
    },
    /// Each angle divided by its own factor, as GGUF files have them.
    Factors(Vec<f32>),
}

/// The angles by which positions turn pairs of a query's or key's numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Numbers of a head, an even number.
    pub head_dim: usize,
    /// The angle of pair `j` at position `p` is `p * base^(-2 j / head_dim)`.
    pub base: f64,
    /// What else is done to angles.
    pub scaling: RopeScaling,
    /// Partners are neighbours, as in Meta's files; otherwise half a head apart, as in transformers.
    pub interleaved: bool,
}

impl Rope {
    /// The angle per position of each pair, in a text of `len` positions, and what cosine and sine are multiplied by.
    fn angles(&self, len: usize) -> (Vec<f32>, f32) {
        let half = self.head_dim / 2;
        let with = |base: f64| -> Vec<f32> {
            let exponent = |j: usize| (2 * j) as f32 / self.head_dim as f32;
            // In f32, as the reference.
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
                    // 1 where the angle is fast, 0 where it is slow.
                    let fast = ((turns(angle, *original) - low) / (high - low)).clamp(0.0, 1.0);
                    (f64::from(angle) * (fast + (1.0 - fast) / factor)) as f32
                };
                (plain.iter().map(scaled).collect(), 1.0)
            }
            RopeScaling::Yarn { factor, beta_fast, beta_slow, original, attention_factor } => {
                // The pair that turns a number of times in the training's length.
                let pair = |turns: f64| {
                    self.head_dim as f64 * (*original as f64 / (turns * 2.0 * PI)).ln() / (2.0 * self.base.ln())
                };
                let first = pair(*beta_fast).floor().max(0.0);
                let last = pair(*beta_slow).ceil().min(self.head_dim as f64 - 1.0);
                let width = (last - first).max(1e-3);
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

    /// What each angle is divided by.
    pub fn factors(&self) -> Vec<f32> {
        let plain = Self { scaling: RopeScaling::None, ..self.clone() };
        plain.angles(0).0.iter().zip(self.angles(0).0).map(|(plain, scaled)| plain / scaled).collect()
    }

    /// The rotations of positions, each row's one after the other: `rows` of `positions.len() / rows`, either one for all
    /// texts or one for each.
    pub fn at<B: Backend>(&self, positions: &[usize], rows: usize, dtype: DType, device: &B::Device) -> Rotation<B> {
        let len = positions.iter().max().map_or(0, |last| last + 1);
        let (angles, magnitude) = self.angles(len);
        let shape = [rows, positions.len() / rows.max(1), angles.len()];
        let table = |f: fn(f32) -> f32| {
            let values = positions
                .iter()
                .flat_map(|&position| angles.iter().map(move |angle| f(position as f32 * angle) * magnitude));
            let table = TensorData::new(values.collect::<Vec<f32>>(), shape).convert_dtype(dtype);
            Tensor::<B, 3>::from_data(table, (device, dtype))
        };
        Rotation { cos: table(f32::cos), sin: table(f32::sin), interleaved: self.interleaved }
    }
}

/// What turns the queries and keys of some positions, the same in every layer.
#[derive(Clone, Debug)]
pub struct Rotation<B: Backend> {
    /// `[b or 1, t, head_dim / 2]`
    cos: Tensor<B, 3>,
    sin: Tensor<B, 3>,
    interleaved: bool,
}

impl<B: Backend> Rotation<B> {
    /// # Shapes
    /// - input and output `[b, t, n_head, head_dim]`
    pub fn turn(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let float = |x: &Tensor<B, 3>| x.clone().into_primitive().tensor();
        let y = B::rotate(x.into_primitive().tensor(), float(&self.cos), float(&self.sin), self.interleaved);
        Tensor::from_primitive(TensorPrimitive::Float(y))
    }
}
