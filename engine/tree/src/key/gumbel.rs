//! Gumbel samples and categorical samples.

use burn::tensor::{FloatDType, Int, Tensor, TensorData};
use burn_backend::get_device_settings;
use grove_backend::{
    Backend, ops,
    random::{self, Distribution},
};

use super::Key;

impl Key {
    /// Returns `n` samples of the standard Gumbel distribution; see [`Key::gumbel`].
    pub fn gumbel_vec(self, n: usize) -> Vec<f32> {
        random::gumbel(self.host_words(), n)
    }

    /// Samples the standard Gumbel distribution (`jax.random.gumbel` in its default, "low", mode).
    ///
    /// All samples are between -4.47 and 15.95.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn gumbel<B: Backend, const D: usize>(self, shape: [usize; D], device: &B::Device) -> Tensor<B, D> {
        ops::random_floats(self.words, Distribution::Gumbel, shape, device)
    }

    /// Samples an index with the probabilities `softmax(logits)` (`jax.random.categorical` of one row).
    ///
    /// A logit of minus infinity is never sampled, unless all logits are minus infinity: then the index is 0. NaN
    /// counts as the largest logit.
    ///
    /// # Panics
    /// If `logits` is empty.
    pub fn categorical_row(self, logits: &[f32]) -> usize {
        argmax(logits, &self.gumbel_vec(logits.len()))
    }

    /// Samples one index for each row of `classes` values in `logits`; see [`Key::categorical`].
    ///
    /// # Panics
    /// If `classes` is zero, or does not divide the number of logits.
    pub fn categorical_vec(self, logits: &[f32], classes: usize) -> Vec<usize> {
        assert!(
            classes > 0 && logits.len().is_multiple_of(classes),
            "{} logits are not rows of {classes} classes",
            logits.len()
        );
        let noise = self.gumbel_vec(logits.len());
        logits.chunks_exact(classes).zip(noise.chunks_exact(classes)).map(|(row, noise)| argmax(row, noise)).collect()
    }

    /// Samples one index for each row with the probabilities `softmax(row)` (`jax.random.categorical` in its default
    /// mode: the argmax of logits plus Gumbel noise).
    ///
    /// The logits are copied to the host and converted to f32. [`Key::categorical_row`] documents minus infinity and
    /// NaN. With a traced key, the backend computes the argmax.
    ///
    /// # Shapes
    /// - logits: `[rows, classes]`
    /// - output: `[rows]`
    ///
    /// # Panics
    /// If there are no classes.
    pub fn categorical<B: Backend>(self, logits: Tensor<B, 2>) -> Tensor<B, 1, Int> {
        let [rows, classes] = logits.dims();
        let device = logits.device();
        if self.is_traced() {
            let noise = self.gumbel::<B, 2>([rows, classes], &device);
            let largest = (logits.cast(FloatDType::F32) + noise).argmax(1).squeeze_dim(1);
            return largest.cast(get_device_settings::<B>(&device).int_dtype);
        }
        let logits: Vec<f32> = logits.into_data().iter::<f32>().collect();
        let indices = self.categorical_vec(&logits, classes);
        let indices: Vec<i64> = indices.into_iter().map(|index| index as i64).collect();
        Tensor::from_data(TensorData::new(indices, [rows]), &device)
    }
}

/// Returns the index of the largest sum; the first index on ties, and the index of the first NaN if there is any.
fn argmax(logits: &[f32], noise: &[f32]) -> usize {
    assert!(!logits.is_empty(), "cannot sample from zero logits");
    let mut best = (0, logits[0] + noise[0]);
    for (index, (logit, noise)) in logits.iter().zip(noise).enumerate() {
        let score = logit + noise;
        if score.is_nan() {
            return index;
        }
        if score > best.1 {
            best = (index, score);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_logits() {
        let (key, low) = (Key::new(3), f32::NEG_INFINITY);
        assert_eq!(key.categorical_row(&[low, low]), 0);
        assert_eq!(key.categorical_row(&[low, -50.0, low]), 1);
        assert_eq!(key.categorical_row(&[1.0, f32::INFINITY]), 1);
        assert_eq!(key.categorical_row(&[1.0, f32::NAN, f32::NAN]), 1);
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [0.1_f32, 0.6, 0.3].map(f32::ln).repeat(20_000);
        let indices = Key::new(0).categorical_vec(&logits, 3);
        let share = |class| indices.iter().filter(|&&i| i == class).count() as f32 / 20_000.0;
        for (class, expected) in [0.1, 0.6, 0.3].into_iter().enumerate() {
            assert!((share(class) - expected).abs() < 0.01);
        }
    }

    #[test]
    #[should_panic(expected = "7 logits are not rows of 3 classes")]
    fn ragged_rows() {
        Key::new(0).categorical_vec(&[0.0; 7], 3);
    }
}
