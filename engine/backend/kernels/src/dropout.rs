use rayon::prelude::*;

use crate::{
    dispatch::{TASK, vectorized},
    fresh::by_chunks,
    threefry::{advanced, bits, counter},
};

/// Number of random bits of an element that form a fraction in [0, 1): the upper 23, as in JAX.
const FRACTION_BITS: u32 = 23;

/// Dropout (Srivastava et al., 2014): sets elements to 0 with probability `rate` and divides the others by `1 - rate`.
///
/// Element `i`, in row-major order, is kept if the `i`-th value of `jax.random.uniform(key)` is below `1 - rate`. The mask
/// need not be stored: the same key generates the same mask.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Dropout {
    /// Words of the random key, high word first.
    pub key: [u32; 2],
    /// An element is kept if the upper 23 of its 32 random bits are below this threshold.
    pub threshold: u32,
    /// Factor of the kept elements.
    #[serde(with = "crate::exact")]
    pub scale: f32,
}

impl Dropout {
    /// Creates dropout with a rate; `None` at rate 0, at which dropout is the identity. At rate 1 all elements are dropped.
    ///
    /// # Panics
    /// If the rate is NaN.
    #[track_caller]
    pub fn new(key: [u32; 2], rate: f64) -> Option<Self> {
        assert!(!rate.is_nan(), "the dropout rate is NaN; it must be a number from 0 to 1");
        if rate <= 0.0 {
            return None;
        }
        let keep = 1.0 - rate;
        let scale = if keep > 0.0 { (1.0 / keep) as f32 } else { 0.0 };
        // Fractions are integer multiples of 2^-23, so comparing integers is equivalent to comparing in f32. Negative values
        // give the threshold 0.
        let threshold = (f64::from(keep as f32) * f64::from(1 << FRACTION_BITS)).ceil() as u32;
        Some(Self { key, threshold, scale })
    }

    /// Returns the factor of an element from its index as two words, high word first.
    #[inline(always)]
    fn factor_at(&self, counter: [u32; 2]) -> f32 {
        if bits(self.key, counter) >> (32 - FRACTION_BITS) < self.threshold { self.scale } else { 0.0 }
    }

    /// Returns the factor of an element: 0 or `scale`.
    pub fn factor(&self, index: u64) -> f32 {
        self.factor_at(counter(index))
    }

    /// Returns the factors of the first `len` elements.
    pub fn factors(&self, len: usize) -> Vec<f32> {
        by_chunks(len, TASK, |i, values| fill(values, (i * TASK) as u64, self))
    }

    /// Multiplies elements by their factors in place.
    pub fn apply(&self, x: &mut [f32]) {
        x.par_chunks_mut(TASK).enumerate().for_each(|(i, x)| multiply(x, (i * TASK) as u64, self));
    }

    /// Like [`apply`](Self::apply), into a new vector.
    pub fn applied(&self, x: &[f32]) -> Vec<f32> {
        by_chunks(x.len(), TASK, |i, values| {
            let from = i * TASK;
            values.copy_from_slice(&x[from..from + values.len()]);
            multiply(values, from as u64, self);
        })
    }

    /// Multiplies elements, whose first index is `first`, by their factors on this thread.
    pub(crate) fn apply_from(&self, first: usize, x: &mut [f32]) {
        multiply(x, first as u64, self);
    }

    /// Writes the factors of elements from index `first` on, on this thread.
    pub(crate) fn fill_from(&self, first: usize, factors: &mut [f32]) {
        fill(factors, first as u64, self);
    }
}

// A call covers fewer than 2^32 elements.

vectorized! {
    fn multiply<FUSED>(x: &mut [f32], first: u64, dropout: &Dropout) {
        let (first, dropout) = (counter(first), *dropout);
        for (i, x) in x.iter_mut().enumerate() {
            *x *= dropout.factor_at(advanced(first, i as u32));
        }
    }
}

vectorized! {
    fn fill<FUSED>(factors: &mut [f32], first: u64, dropout: &Dropout) {
        let (first, dropout) = (counter(first), *dropout);
        for (i, factor) in factors.iter_mut().enumerate() {
            *factor = dropout.factor_at(advanced(first, i as u32));
        }
    }
}

/// Returns 32 random bits per element for `len` elements: `jax.random.bits(key)`.
pub fn random_bits(key: [u32; 2], len: usize) -> Vec<u32> {
    let mut values = vec![0; len];
    values.par_chunks_mut(TASK).enumerate().for_each(|(i, values)| fill_bits(values, (i * TASK) as u64, key));
    values
}

vectorized! {
    fn fill_bits<FUSED>(values: &mut [u32], first: u64, key: [u32; 2]) {
        let first = counter(first);
        for (i, value) in values.iter_mut().enumerate() {
            *value = bits(key, advanced(first, i as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u32; 2] = [7, 0x9E37_79B9];

    #[test]
    fn mask_matches_uniform_samples() {
        for rate in [1e-9, 0.1, 0.5, 0.9, 1.0 - 1e-9, 1.0, 2.0] {
            let dropout = Dropout::new(KEY, rate).unwrap();
            let keep = 1.0 - rate;
            for (i, &bits) in random_bits(KEY, 5000).iter().enumerate() {
                let uniform = f32::from_bits(bits >> 9 | 1.0f32.to_bits()) - 1.0;
                let expected = if uniform < keep as f32 { (1.0 / keep) as f32 } else { 0.0 };
                assert_eq!(dropout.factor(i as u64), expected, "rate {rate}, element {i}");
            }
        }
        assert_eq!(Dropout::new(KEY, 0.0), None);
        assert_eq!(Dropout::new(KEY, -1.0), None);
        assert!(Dropout::new(KEY, 1.0).unwrap().factors(100).iter().all(|&x| x == 0.0));
    }

    #[test]
    #[should_panic(expected = "the dropout rate is NaN")]
    fn refuses_a_rate_of_nan() {
        Dropout::new(KEY, f64::NAN);
    }

    #[test]
    fn every_way_draws_the_same() {
        let dropout = Dropout::new(KEY, 0.3).unwrap();
        for len in [0, 1, 255, 257, TASK - 1, 2 * TASK + 5] {
            let x: Vec<f32> = (0..len).map(|i| i as f32 - 100.0).collect();
            let expected: Vec<f32> = (0..len).map(|i| x[i] * dropout.factor(i as u64)).collect();
            let mut y = x.clone();
            dropout.apply(&mut y);
            assert_eq!(y, expected);
            assert_eq!(dropout.applied(&x), expected);
            let factors = dropout.factors(len);
            assert!(factors.iter().enumerate().all(|(i, &factor)| factor == dropout.factor(i as u64)));
            let bits = random_bits(KEY, len);
            assert!(bits.iter().enumerate().all(|(i, &x)| x == super::bits(KEY, counter(i as u64))));
        }
    }

    #[test]
    fn indices_carry_into_the_high_word() {
        let dropout = Dropout::new(KEY, 0.5).unwrap();
        let first = (1 << 32) - 20;
        let mut factors = [0.0; 40];
        dropout.fill_from(first, &mut factors);
        let mut x = [1.0; 40];
        dropout.apply_from(first, &mut x);
        let expected: Vec<f32> = (0..40).map(|i| dropout.factor((first + i) as u64)).collect();
        assert_eq!((&factors[..], &x[..]), (&expected[..], &expected[..]));
    }
}
