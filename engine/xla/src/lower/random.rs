//! Random numbers: Threefry, bit for bit equal to `jax.random` and to grove on the host.

use grove_backend::ops::{Dropout, RandomBits, RandomSamples};
use grove_kernels::random::Distribution;
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

use super::{builder::Builder, value::Value};
use crate::{ArrayType, ElementType};

/// Constant of the key schedule.
const PARITY: usize = 0x1BD1_1BDA;

/// Rotations of the rounds, four of them between two additions of the key.
const ROTATIONS: [[usize; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];

/// Random bits of an element that are not part of the fraction: 32 minus 23.
const OTHER_BITS: usize = 9;

impl Builder {
    /// Returns a key of two words.
    pub(super) fn key(&mut self, words: [u32; 2]) -> Value {
        self.values(ArrayType::new(ElementType::U32, [2]), words.map(|word| word as usize))
    }

    /// Returns child `index` of a key.
    pub(super) fn child_key(&mut self, key: &Value, index: u64) -> Value {
        let one = ArrayType::new(ElementType::U32, [1]);
        let [high, low] = [index >> 32, index & 0xFFFF_FFFF].map(|word| self.full(one.clone(), word as usize));
        let words = self.threefry(key, [high, low]);
        self.concatenate(&words, 0)
    }

    /// Returns the children of one key, or of `n` keys, for integers `[n]`.
    pub(super) fn child_keys(&mut self, key: &Value, data: &Value) -> Value {
        let low = self.convert(data, ElementType::U32);
        let high = self.full_like(&low, 0_usize);
        let columns = self.threefry(key, [high, low]).map(|words| self.reshape(&words, &[data.dims()[0], 1]));
        self.concatenate(&columns, 1)
    }

    /// Encrypts blocks of two words with one key, or with one key per block `[n]`.
    fn threefry(&mut self, key: &Value, [mut a, mut b]: [Value; 2]) -> [Value; 2] {
        let dims = a.dims().to_vec();
        let word = |lines: &mut Self, i: usize| {
            let [count, ..] = key.dims() else { unreachable!("a key has two words") };
            if key.rank() == 2 {
                let word = lines.slice(key, &[[0, *count, 1], [i, i + 1, 1]]);
                return lines.reshape(&word, &dims);
            }
            let word = lines.slice(key, &[[i, i + 1, 1]]);
            let word = lines.reshape(&word, &[]);
            lines.broadcast(&word, &dims, &[])
        };
        let (first, second) = (word(self, 0), word(self, 1));
        let parity = self.full_like(&first, PARITY);
        let mixed = self.binary("xor", &first, &second);
        let third = self.binary("xor", &mixed, &parity);
        let schedule = [first, second, third];
        a = self.binary("add", &a, &schedule[0]);
        b = self.binary("add", &b, &schedule[1]);
        for step in 1..=5_usize {
            for rotation in ROTATIONS[(step + 1) % 2] {
                a = self.binary("add", &a, &b);
                let (left, right) = (self.full_like(&b, rotation), self.full_like(&b, 32 - rotation));
                let (up, down) = (self.binary("shift_left", &b, &left), self.binary("shift_right_logical", &b, &right));
                let rotated = self.binary("or", &up, &down);
                b = self.binary("xor", &a, &rotated);
            }
            a = self.binary("add", &a, &schedule[step % 3]);
            let count = self.full_like(&b, step);
            let next = self.binary("add", &schedule[(step + 1) % 3], &count);
            b = self.binary("add", &b, &next);
        }
        [a, b]
    }

    /// Returns 32 random bits for each element of a shape.
    fn bits(&mut self, key: &Value, dims: &[usize]) -> Value {
        // Indices as two words; the high words are zero for less than 2^32 elements.
        let count: usize = dims.iter().product();
        let index = self.iota(ArrayType::new(ElementType::U64, [count]), 0);
        let half = self.full_like(&index, 32_usize);
        let high = self.binary("shift_right_logical", &index, &half);
        let counter = [high, index].map(|words| self.convert(&words, ElementType::U32));
        let [high, low] = self.threefry(key, counter);
        let bits = self.binary("xor", &high, &low);
        self.reshape(&bits, dims)
    }

    /// Returns the upper random bits, which form a fraction.
    fn fraction_bits(&mut self, key: &Value, dims: &[usize]) -> Value {
        let bits = self.bits(key, dims);
        let shift = self.full_like(&bits, OTHER_BITS);
        self.binary("shift_right_logical", &bits, &shift)
    }

    pub(super) fn random_bits(&mut self, operation: &RandomBits, key: &Value, array: &ArrayType) -> Value {
        let bits = self.bits(key, &operation.shape);
        // An i32 has the same width: the bits are reinterpreted, not converted.
        if array.element == ElementType::I32 {
            self.bitcast(&bits, array.element)
        } else {
            self.convert(&bits, array.element)
        }
    }

    pub(super) fn dropout(&mut self, operation: &Dropout, key: &Value, x: &Value) -> Value {
        let fraction = self.fraction_bits(key, x.dims());
        let threshold = self.full_like(&fraction, operation.threshold as usize);
        let mask = self.compare("LT", &fraction, &threshold);
        let (scale, zero) = (self.full_like(x, f64::from(operation.scale)), self.full_like(x, 0.0));
        let factors = self.select(&mask, &scale, &zero);
        self.binary("multiply", x, &factors)
    }

    pub(super) fn random_samples(&mut self, operation: &RandomSamples, key: &Value, array: &ArrayType) -> Value {
        let dims = &operation.shape[..];
        let samples = match operation.distribution {
            Distribution::Uniform { low, high } => self.uniform(key, dims, low, high),
            Distribution::Normal => {
                let uniform = self.uniform(key, dims, (-1.0_f32).next_up(), 1.0);
                self.normal(&uniform)
            }
            Distribution::TruncatedNormal { lower, upper } => {
                let [low, high] = [lower, upper].map(|bound| {
                    let bound = self.scalar(ElementType::F32, f64::from(bound * FRAC_1_SQRT_2 as f32));
                    self.unary("chlo.erf", &bound)
                });
                let unit = self.unit(key, dims);
                let uniform = self.between(&unit, &low, &high);
                let normal = self.normal(&uniform);
                let [lower, upper] = [lower.next_up(), upper.next_down()].map(f64::from);
                self.clamp(&normal, lower.into(), upper.into())
            }
            Distribution::Gumbel => {
                let uniform = self.uniform(key, dims, f32::MIN_POSITIVE, 1.0);
                let log = self.unary("stablehlo.log", &uniform);
                let positive = self.unary("stablehlo.negate", &log);
                let log = self.unary("stablehlo.log", &positive);
                self.unary("stablehlo.negate", &log)
            }
            Distribution::Bernoulli { p } => {
                let uniform = self.uniform(key, dims, 0.0, 1.0);
                let p = self.full_like(&uniform, f64::from(p));
                return self.compare("LT", &uniform, &p);
            }
            Distribution::Integers { low, high } => self.integers(key, dims, low, high),
        };
        self.convert(&samples, array.element)
    }

    /// Returns samples in [0, 1).
    fn unit(&mut self, key: &Value, dims: &[usize]) -> Value {
        let fraction = self.fraction_bits(key, dims);
        let one = self.full_like(&fraction, 1.0_f32.to_bits() as usize);
        let bits = self.binary("or", &fraction, &one);
        let float = self.bitcast(&bits, ElementType::F32);
        let one = self.full_like(&float, 1.0);
        self.binary("subtract", &float, &one)
    }

    /// Scales samples in [0, 1) to samples between two numbers.
    fn between(&mut self, unit: &Value, low: &Value, high: &Value) -> Value {
        let span = self.binary("subtract", high, low);
        let [low, span] = [low, &span].map(|x| self.broadcast(x, unit.dims(), &[]));
        let scaled = self.binary("multiply", unit, &span);
        let value = self.binary("add", &scaled, &low);
        self.binary("maximum", &value, &low)
    }

    fn uniform(&mut self, key: &Value, dims: &[usize], low: f32, high: f32) -> Value {
        let unit = self.unit(key, dims);
        let [low, high] = [low, high].map(|bound| self.scalar(ElementType::F32, f64::from(bound)));
        self.between(&unit, &low, &high)
    }

    fn normal(&mut self, uniform: &Value) -> Value {
        let (inverse, root) = (self.unary("chlo.erf_inv", uniform), self.full_like(uniform, SQRT_2));
        self.binary("multiply", &root, &inverse)
    }

    /// Returns integers as remainders of 64 random bits.
    fn integers(&mut self, key: &Value, dims: &[usize], low: i32, high: i32) -> Value {
        let span = if high > low { high.abs_diff(low) } else { 1 };
        let root = (1 << 16) % span;
        let wrap = root.wrapping_mul(root) % span;
        let keys = [0, 1].map(|child| self.child_key(key, child));
        let [high, lower] = keys.map(|key| self.bits(&key, dims));
        let (span, wrap) = (self.full_like(&high, span as usize), self.full_like(&high, wrap as usize));
        let [high, lower] = [high, lower].map(|bits| self.binary("remainder", &bits, &span));
        let scaled = self.binary("multiply", &high, &wrap);
        let sum = self.binary("add", &scaled, &lower);
        let offset = self.binary("remainder", &sum, &span);
        let offset = self.bitcast(&offset, ElementType::I32);
        let low = self.full_like(&offset, i64::from(low));
        self.binary("add", &offset, &low)
    }
}
